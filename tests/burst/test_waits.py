"""Waits are counted from when a request was due; neither losses nor refusals flatter them."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmperf.load.burst import waits
from pytest_llmperf.record import Failure, FailureKind, Request, Stamps
from pytest_llmperf.testing import a_request


def answered(wait_s: float, *, due_s: float = 0.0) -> Request:
    last_ns = round((due_s + wait_s) * 1e9)
    stamps = Stamps(due_ns=round(due_s * 1e9), sent_ns=last_ns - 1, last_token_ns=last_ns)
    return a_request(stamps=stamps)


def failed(kind: FailureKind, after_s: float, status: int = 503) -> Request:
    stamps = Stamps(due_ns=0, sent_ns=1, closed_ns=round(after_s * 1e9))
    failure = Failure(kind=kind, detail="")
    return a_request(stamps=stamps, failure=failure, http_status=status, chunks=())


def p(requests: list[Request], share: float) -> str:
    found = waits(requests).quantile(share)
    return "none" if found is None else found.words


class TestAQuantile:
    def test_counts_from_when_the_request_was_due_not_from_when_it_was_sent(self) -> None:
        assert p([answered(2.0)], 0.5) == "2.00 s"

    def test_is_the_smallest_wait_that_the_share_does_not_exceed(self) -> None:
        sent = [answered(float(number)) for number in range(1, 101)]
        assert (p(sent, 0.5), p(sent, 0.99), p(sent, 0.01)) == ("50.0 s", "99.0 s", "1.00 s")

    def test_that_falls_among_timeouts_is_more_than_the_limit(self) -> None:  # F7
        sent = [*[answered(1.0)] * 95, *[failed("timeout", 60.0)] * 5]
        assert (p(sent, 0.95), p(sent, 0.96), p(sent, 0.99)) == ("1.00 s", "> 60.0 s", "> 60.0 s")

    def test_of_an_early_abort_is_more_than_any_answer_took(self) -> None:
        sent = [answered(24.0), failed("interrupted", 1.0)]
        assert p(sent, 0.99) == "> 24.0 s"

    def test_is_not_moved_by_refusals_however_fast(self) -> None:  # F6
        slow = [answered(10.0)] * 10
        assert p([*slow, *[failed("refused", 0.001)] * 990], 0.5) == "10.0 s"

    @pytest.mark.parametrize("status", [307, 400, 500, 502, 504])
    def test_of_a_status_that_turns_nobody_away_ranks_last(self, status: int) -> None:
        sent = [*[answered(0.03)] * 6, *[failed("refused", 2.0, status)] * 2]
        assert p(sent, 0.99) == "> 2.00 s"

    def test_is_none_where_the_server_took_nothing_on(self) -> None:
        assert p([failed("refused", 0.001), failed("connect", 0.001)], 0.5) == "none"

    def test_of_a_broken_connection_ranks_last(self) -> None:  # F8
        assert p([answered(2.0), failed("reset", 0.5)], 0.99) == "> 2.00 s"


class TestBesideTheQuantiles:
    def test_stands_the_share_that_is_left_out(self) -> None:
        sent = [*[answered(1.0)] * 10, *[failed("refused", 0.1)] * 30]
        assert waits(sent).beside == (
            "30 (75 %) refused or not connected are left out, told so within 0.100 s"
        )

    def test_stands_the_share_without_an_answer(self) -> None:
        sent = [*[answered(1.0)] * 9, failed("timeout", 60.0)]
        assert waits(sent).beside == "1 (10 %) unanswered rank last"

    def test_stands_nothing_where_all_were_answered(self) -> None:
        assert waits([answered(1.0)]).beside == ""


def test_a_request_of_unknown_due_time_is_counted_as_such() -> None:
    stamps = msgspec.structs.replace(answered(1.0).stamps, due_ns=None)
    assert waits([a_request(stamps=stamps)]).undated == 1


@given(
    st.lists(st.floats(0.01, 59.0), min_size=1, max_size=30),
    st.integers(0, 29),
    st.floats(0.01, 0.99),
)
def test_losing_a_request_never_makes_a_quantile_better(
    times: list[float], lost: int, share: float
) -> None:
    sent = [answered(each) for each in times]
    whole = waits(sent).quantile(share)
    sent[lost % len(sent)] = failed("timeout", 60.0)
    less = waits(sent).quantile(share)
    assert whole is not None
    assert less is not None
    assert less.at_s >= whole.at_s - 1e-9


@pytest.mark.parametrize("kind", ["refused", "connect"])
def test_what_was_never_taken_on_is_left_out(kind: FailureKind) -> None:
    found = waits([failed(kind, 0.1)])
    assert (found.taken, found.left_out) == (0, 1)
