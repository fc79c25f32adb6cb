"""How a stream fails: everything that was seen is kept, and the first cause is named."""

# ruff: noqa: ANN401 - chunks are JSON, and builders pass on whatever fields they are given

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pytest_llmperf.record import Failure
from pytest_llmperf.stream import Reading, read_stream
from pytest_llmperf.stream.sse import Event

Reader = Callable[..., Reading]
A = {"choices": [{"index": 0, "delta": {"content": "a"}}]}
STOP = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
BROKEN = Failure(kind="interrupted", detail="the peer left")


class TestErrorsOfTheServer:
    @pytest.mark.parametrize(
        ("body", "detail", "code"),
        [
            ({"error": {"message": "out of memory", "code": 500}}, "out of memory", 500),
            ({"error": {"message": "out of memory", "code": 7}}, "out of memory", None),
            ({"error": {"message": "out of memory", "code": "500"}}, "out of memory", None),
            ({"error": "out of memory"}, "out of memory", None),
            ({"object": "error", "message": "out of memory", "code": 503}, "out of memory", 503),
            ({"error": {"code": 500}}, '{"error":{"code":500}}', 500),
        ],
    )
    def test_an_error_event_in_a_good_stream_fails_it(
        self, reading: Reader, body: dict[str, Any], detail: str, code: int | None
    ) -> None:
        read = reading(A, body, "[DONE]")
        assert read.failure == Failure(kind="server_error", detail=detail, code=code)
        assert len(read.chunks) == 1

    @pytest.mark.parametrize(("data", "detail"), [("boom", "boom"), ('{"message":"no"}', "no")])
    def test_an_event_of_the_type_error_is_one(self, data: str, detail: str) -> None:
        read = read_stream([Event(1, data, "error")])
        assert read.failure == Failure(kind="server_error", detail=detail)

    def test_an_error_that_is_null_is_none(self, reading: Reader) -> None:
        assert reading({**A, "error": None}, STOP, "[DONE]").failure is None

    @pytest.mark.parametrize("reason", ["abort", "error", {"type": "abort"}])
    def test_a_finish_by_giving_up_is_an_error(self, reading: Reader, reason: Any) -> None:
        given_up = {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}
        failure = reading(A, given_up, "[DONE]").failure
        assert failure is not None
        assert failure.kind == "server_error"


class TestBrokenProtocol:
    @pytest.mark.parametrize(
        ("data", "detail"),
        [
            ("[1]", "an event is no object: '[1]'"),
            ('"x"', "an event is no object: '\"x\"'"),
        ],
    )
    def test_an_event_that_is_no_object_fails_the_request(
        self, reading: Reader, data: str, detail: str
    ) -> None:
        read = reading(A, data, STOP, "[DONE]")
        assert read.failure == Failure(kind="protocol", detail=detail)
        assert len(read.chunks) == 1

    def test_an_event_that_is_no_json_fails_the_request_with_its_text(
        self, reading: Reader
    ) -> None:
        failure = reading(A, '{"choices": [', STOP, "[DONE]").failure
        assert failure is not None
        assert failure.kind == "protocol"
        assert failure.detail.startswith("an event is not JSON (")
        assert failure.detail.endswith(": '{\"choices\": ['")

    def test_json_as_deep_as_a_well_is_no_json_here(self, reading: Reader) -> None:
        failure = reading(A, "[" * 100_000, "[DONE]").failure
        assert failure is not None
        assert failure.kind == "protocol"


class TestEndings:
    def test_neither_finish_nor_end_mark_is_incomplete(self, reading: Reader) -> None:
        assert reading(A).failure == Failure(
            kind="incomplete",
            detail="the stream ended without a finish reason and without [DONE]",
        )

    def test_an_event_cut_off_is_shown(self, reading: Reader) -> None:
        assert reading(A, leftover=b'data: {"cho').failure == Failure(
            kind="incomplete",
            detail=(
                "the stream ended without a finish reason and without [DONE], "
                "in the middle of an event: b'data: {\"cho'"
            ),
        )

    @pytest.mark.parametrize("end", [STOP, "[DONE]", " [DONE] "])
    def test_either_of_them_completes_it(self, reading: Reader, end: Any) -> None:
        assert reading(A, end).failure is None

    def test_a_cut_end_mark_after_a_finish_is_only_doubtful(self, reading: Reader) -> None:
        read = reading(A, STOP, leftover=b"data: [DONE]")
        assert read.failure is None
        assert read.warnings == ("truncated: the last event has no end: b'data: [DONE]'",)

    def test_a_good_end_without_a_token_is_a_failure(self, reading: Reader) -> None:
        role = {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}
        assert reading(role, STOP, "[DONE]").failure == Failure(
            kind="no_token", detail="the stream ended without one generated token"
        )

    def test_nothing_at_all_is_incomplete(self, reading: Reader) -> None:
        failure = reading().failure
        assert failure is not None
        assert failure.kind == "incomplete"


class TestBrokenTransport:
    def test_it_is_the_failure_and_what_came_is_kept(self, reading: Reader) -> None:
        read = reading(A, A, broken=BROKEN)
        assert read.failure == BROKEN
        assert len(read.chunks) == 2

    def test_the_servers_own_error_explains_it_better(self, reading: Reader) -> None:
        failure = reading(A, {"error": "out of memory"}, broken=BROKEN).failure
        assert failure == Failure(kind="server_error", detail="out of memory")

    def test_after_a_finish_but_before_the_end_mark_it_still_counts(self, reading: Reader) -> None:
        assert reading(A, STOP, broken=BROKEN).failure == BROKEN

    def test_after_the_end_mark_it_is_only_doubtful(self, reading: Reader) -> None:
        read = reading(A, STOP, "[DONE]", broken=BROKEN)
        assert read.failure is None
        assert read.warnings == ("open end: after [DONE], interrupted: the peer left",)
