"""Fixtures of the client's tests: chunks as text of a stream, and a client of a scripted server."""

# ruff: noqa: ANN401 - chunks are JSON, and builders pass on whatever fields they are given

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import msgspec
import pytest

from pytest_llmperf.client import Client
from pytest_llmperf.planned import PlannedRequest
from pytest_llmperf.stream import Reading, read_stream
from pytest_llmperf.stream.sse import Event
from pytest_llmperf.testing import Answer, ScriptedServer

Said = dict[str, Any] | str
"""One event's data: an object, or text as it is."""

Reader = Callable[..., Reading]
"""Reads data given one by one, 10 ms apart or each with its own milliseconds."""


def as_event(place: int, said: Said | tuple[int, Said]) -> Event:
    at_ms, body = said if isinstance(said, tuple) else (10 * (place + 1), said)
    data = body if isinstance(body, str) else msgspec.json.encode(body).decode()
    return Event(at_ms * 1_000_000, data)


@pytest.fixture
def reading() -> Reader:
    def read(*said: Said | tuple[int, Said], **rest: Any) -> Reading:
        return read_stream([as_event(place, each) for place, each in enumerate(said)], **rest)

    return read


@pytest.fixture
def hello() -> PlannedRequest:
    return PlannedRequest(
        prompt="hello",
        messages=({"role": "user", "content": "say hello to the whole house"},),
        max_tokens=8,
    )


@pytest.fixture
def scripted() -> Iterator[Callable[..., tuple[Client, ScriptedServer]]]:
    """A client of a server with this script; keywords are the client's."""
    with ExitStack() as stack:

        def make(*answers: Answer, **client: Any) -> tuple[Client, ScriptedServer]:
            server = stack.enter_context(ScriptedServer(answers))
            options = {"model": server.model, **client}
            return stack.enter_context(Client(server.url, **options)), server

        yield make
