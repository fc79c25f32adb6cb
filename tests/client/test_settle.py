"""Waiting for an abandoned generation to end before the next measurement: case S20."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pytest_llmperf.client import Client
from pytest_llmperf.client.settle import settle
from pytest_llmperf.errors import EngineError, EngineLate
from pytest_llmperf.planned import PlannedRequest
from pytest_llmperf.testing import ScriptedServer, TickingClock, chat_stream


def counting(*counts: float | None) -> Callable[[], float | None]:
    left = iter(counts)
    return lambda: next(left)


def test_an_idle_engine_is_not_waited_for() -> None:
    assert settle(counting(0.0), clock=TickingClock(step_ns=0)) == 0.0


def test_a_busy_engine_is_waited_for_until_nothing_runs() -> None:
    clock = TickingClock(step_ns=0)
    waited_s = settle(counting(2.0, 1.0, 0.0), every_s=0.5, clock=clock, sleep=clock.advance)
    assert waited_s == 1.0


def test_the_wait_is_bounded() -> None:
    clock = TickingClock(step_ns=0)
    with pytest.raises(EngineLate) as caught:
        settle(lambda: 3.0, within_s=2.0, every_s=0.5, clock=clock, sleep=clock.advance)
    assert clock.now_ns == 2_000_000_000
    assert str(caught.value) == (
        "The engine still runs 3 requests after 2 s.\n"
        "Our own requests are over, so these are abandoned or somebody else's.\n"
        "Find who else uses the engine, or allow it more time."
    )


def test_an_unknown_count_is_not_zero() -> None:
    with pytest.raises(EngineError) as caught:
        settle(counting(None))
    assert str(caught.value) == (
        "Whether the engine is idle is not known.\n"
        "It does not say how many requests run.\n"
        "Let its metrics page be read (it must not be started with --disable-log-stats)."
    )


def test_an_engine_that_was_left_settles(hello: PlannedRequest) -> None:
    with (
        ScriptedServer([chat_stream(tokens=1000, gap_s=0.01)]) as server,
        Client(server.url, model="scripted", timeout_s=0.1) as client,
    ):
        request = client.send(hello, request_id="r")
        assert request.failure is not None
        settle(lambda: server.open_now, every_s=0.01)
        assert server.open_now == 0
