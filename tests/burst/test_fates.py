"""Every request of a burst has one fate, and the fates sum up to what was planned."""

from __future__ import annotations

from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmperf import record
from pytest_llmperf.load.burst import fate, tally
from pytest_llmperf.record import Failure, FailureKind, Request
from pytest_llmperf.testing import a_request

KINDS: tuple[FailureKind, ...] = get_args(FailureKind)


def failed(kind: FailureKind, status: int | None = None) -> Request:
    return a_request(failure=Failure(kind=kind, detail=""), http_status=status)


def turned_away(code: int | None) -> Request:
    failure = Failure(kind="server_error", detail="The queue is full.", code=code)
    return a_request(failure=failure, http_status=200, stamps=record.Stamps(), chunks=())


@pytest.mark.parametrize("kind", KINDS)
def test_no_way_to_fail_is_without_a_fate(kind: FailureKind) -> None:
    assert fate(failed(kind)) != "completed"
    assert tally([failed(kind)], planned=1).unaccounted == 0


@given(st.lists(st.sampled_from((None, *KINDS)), max_size=40))
def test_the_fates_sum_up_to_the_requests_whatever_became_of_them(
    kinds: list[FailureKind | None],
) -> None:
    sent = [a_request() if kind is None else failed(kind) for kind in kinds]
    found = tally(sent, planned=len(sent))
    assert (found.accounted, found.unaccounted) == (len(sent), 0)
    assert found.completed + found.all_refused + found.lost == len(sent)


class TestATally:
    def test_says_the_sum_and_each_part_of_it(self) -> None:
        sent = [
            *[a_request()] * 480,
            *[failed("refused", 429)] * 10,
            *[failed("refused", 503)] * 2,
            *[failed("connect")] * 3,
            failed("reset"),
            *[failed("timeout", 200)] * 2,
            failed("interrupted", 200),
            failed("server_error", 200),
        ]
        found = tally(sent, planned=500)
        assert found.words == (
            "480 completed + 12 refused (10 429, 2 503) + 3 not connected + 1 reset + 2 timed out"
            " + 2 aborted (1 interrupted, 1 server_error) = 500 of 500"
        )
        assert (found.accepted, found.lost) == (484, 8)

    def test_misses_what_was_planned_and_has_no_record(self) -> None:
        assert tally([a_request()] * 3, planned=5).unaccounted == 2

    def test_counts_a_status_that_turns_nobody_away_as_aborted(self) -> None:
        found = tally([failed("refused", 504), failed("refused", 504)], planned=2)
        assert (found.all_refused, found.lost) == (0, 2)
        assert "2 aborted (HTTP 504) = 2 of 2" in found.words

    def test_counts_a_refusal_without_a_recorded_status_as_unknown(self) -> None:
        assert tally([failed("refused")], planned=1).refused == {"unknown": 1}

    @pytest.mark.parametrize("code", [429, 503])
    def test_counts_a_refusal_inside_a_200_stream_by_its_code(self, code: int) -> None:
        sent = turned_away(code)
        found = tally([sent], planned=1)
        assert found.refused == {f"{code} in the stream": 1}
        assert (found.accepted, found.lost) == (0, 0)

    def test_counts_any_other_error_inside_a_200_stream_as_aborted(self) -> None:
        found = tally([turned_away(500), turned_away(None)], planned=2)
        assert (found.accepted, found.aborted) == (2, {"server_error": 2})

    def test_counts_an_answer_that_had_begun_as_aborted_whatever_ended_it(self) -> None:
        begun = msgspec.structs.replace(turned_away(503), stamps=a_request().stamps)
        assert tally([begun], planned=1).aborted == {"server_error": 1}

    def test_keeps_a_refused_connection_apart_from_one_that_broke(self) -> None:
        found = tally([failed("connect"), failed("reset"), failed("reset")], planned=3)
        assert (found.not_connected, found.reset) == (1, 2)

    def test_does_not_take_what_we_left_for_completed(self) -> None:
        found = tally([failed("cancelled", 200)], planned=1)
        assert (found.completed, found.aborted) == (0, {"cancelled": 1})


def test_a_fate_is_read_off_the_record_alone() -> None:
    assert fate(record.Request(request_id="r", url="")) == "completed"
