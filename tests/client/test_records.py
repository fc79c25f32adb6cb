"""The fakes for other rooms' tests: records with exact stamps, and a clock that ticks."""

# ruff: noqa: ANN401 - chunks are JSON, and builders pass on whatever fields they are given

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from pytest_llmperf import record
from pytest_llmperf.testing import (
    TickingClock,
    a_measurement,
    a_request,
    a_session,
    an_engine,
    some_counters,
)


class TestARequest:
    def test_its_stamps_follow_from_its_arguments(self) -> None:
        request = a_request(first_s=0.2, tokens=5, gap_s=0.03, tokens_per_chunk=2)
        stamps = request.stamps
        assert stamps.sent_ns == 1_000_000_000
        assert stamps.first_byte_ns == stamps.first_event_ns == 1_100_000_000
        assert stamps.first_token_ns == stamps.first_answer_ns == 1_200_000_000
        assert [(c.at_ns, c.tokens) for c in request.chunks] == [
            (1_200_000_000, 2),
            (1_230_000_000, 2),
            (1_260_000_000, 1),
        ]
        assert (stamps.last_token_ns, stamps.closed_ns) == (1_260_000_000, 1_261_000_000)
        assert request.completed

    def test_any_field_may_be_overridden(self) -> None:
        failure = record.Failure(kind="timeout", detail="late")
        request = a_request(cached=None, failure=failure, prompt="p7")
        assert (request.usage.cached_tokens, request.failure, request.prompt) == (
            None,
            failure,
            "p7",
        )

    def test_one_without_tokens_has_no_token_stamps(self) -> None:
        stamps = a_request(tokens=0).stamps
        assert (stamps.first_token_ns, stamps.last_token_ns) == (None, None)
        assert stamps.closed_ns is not None


@pytest.mark.parametrize(
    "made", [a_session(), an_engine(), a_measurement(), some_counters(), a_request()]
)
def test_each_record_survives_its_line(made: Any) -> None:
    line = msgspec.json.encode(made)
    assert msgspec.json.decode(line, type=record.Record) == made


class TestTickingClock:
    def test_it_ticks_with_every_reading(self) -> None:
        clock = TickingClock(5, step_ns=2)
        assert [clock(), clock(), clock.now_ns, clock()] == [5, 7, 9, 9]

    def test_it_can_be_moved(self) -> None:
        clock = TickingClock(step_ns=0)
        clock.advance(1.5)
        assert clock() == 1_500_000_000
