"""Servers in an order: what is sent again, to whom, and what is not."""

from __future__ import annotations

import asyncio

import pytest

from pytest_llmperf.client import Client
from pytest_llmperf.failover import Failover
from pytest_llmperf.record import Request
from pytest_llmperf.testing import ScriptedServer, chat_stream, refusal, stream
from tests.failover.conftest import planned

Servers = tuple[ScriptedServer, ScriptedServer]


def asked(servers: Servers, times: int = 1) -> list[tuple[int, Request]]:
    """Ask some times, one after another; give every attempt with its place."""
    kept: list[tuple[int, Request]] = []

    async def ask() -> None:
        first, following = (Client(each.url, model="scripted", stall_s=0.3) for each in servers)
        async with first, following:
            route = Failover([first, following], keep=lambda *made: kept.append(made))
            for number in range(times):
                await route.ask(planned(number), ask_id=f"a{number}")
            await route.leave()

    asyncio.run(ask())
    return kept


def places(kept: list[tuple[int, Request]]) -> list[int]:
    return [place for place, _ in kept]


def test_a_healthy_first_server_answers_everything(servers: Servers) -> None:
    assert places(asked(servers, 3)) == [0, 0, 0]


@pytest.mark.parametrize(
    "broken",
    [
        stream(chat_stream(tokens=3).parts[0], ending="cut"),
        stream(*chat_stream(tokens=3).parts[:2], ending="hang"),
        stream(*chat_stream(tokens=3).parts[:2]),
    ],
    ids=["broken in mid-stream", "stalled", "ended without an end"],
)
def test_a_broken_answer_is_sent_again_to_the_next(servers: Servers, broken: object) -> None:
    servers[0]._script.append(broken)  # type: ignore[arg-type]  # of a table
    kept = asked(servers, 2)
    assert places(kept) == [0, 1, 1]  # and the first is left alone from then on
    assert [each.attempt for _, each in kept] == [1, 2, 1]
    assert [each.attempt_of for _, each in kept] == ["a0", "a0", "a1"]


def test_a_refused_connection_is_sent_again_to_the_next(servers: Servers) -> None:
    servers[0].die()
    kept = asked(servers)
    assert places(kept) == [0, 1]
    assert kept[0][1].failure is not None
    assert kept[0][1].failure.kind == "connect"


def test_a_refusal_is_an_answer_and_is_not_sent_again(servers: Servers) -> None:
    servers[0]._script.append(refusal(400))
    assert places(asked(servers)) == [0]


def test_where_all_have_failed_each_is_tried_again(servers: Servers) -> None:
    for each in servers:
        each.die()
    assert places(asked(servers, 2)) == [0, 1, 0, 1]


def test_a_finish_reason_without_an_end_mark_is_an_answer(servers: Servers) -> None:
    parts = chat_stream(tokens=3).parts
    servers[0]._script.append(stream(*parts[:-2], ending="hang"))
    kept = asked(servers)
    assert places(kept) == [0]
    assert kept[0][1].finish_reason == "length"
