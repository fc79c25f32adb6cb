"""A window of load has one number; what all had together and what each had stand apart."""

from __future__ import annotations

import resource
from typing import TYPE_CHECKING

import msgspec
import pytest

from pytest_llmperf import assert_latency, assert_throughput
from pytest_llmperf.denominator import AGGREGATE_THROUGHPUT, CACHED_TURN
from pytest_llmperf.errors import Regression, UsageError
from pytest_llmperf.measure.connections import check_connections
from pytest_llmperf.run import Run
from pytest_llmperf.sample import value, window_value, window_values
from pytest_llmperf.testing import a_request

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pytest_llmperf.evidence import Measured

    Load = Callable[..., Measured]

FOUR = msgspec.structs.replace(AGGREGATE_THROUGHPUT, streams=4)
EACH = msgspec.structs.replace(CACHED_TURN, prefix="any", streams=4)
DUE = msgspec.structs.replace(EACH, streams=None, arrival="constant", rate_rps=2.0)


class TestTheSpanClock:
    def test_sums_tokens_from_the_first_sent_to_the_last_token(self) -> None:
        first = a_request(request_id="a", tokens=11, first_s=0.5, gap_s=0.1, start_ns=0)
        last = a_request(request_id="b", tokens=21, first_s=0.5, gap_s=0.1, start_ns=500_000_000)
        assert window_value([first, last], FOUR) == pytest.approx(32 / 3.0)

    def test_starts_when_the_first_was_due_under_a_schedule(self) -> None:
        request = a_request(tokens=11, first_s=0.5, gap_s=0.1, start_ns=1_000_000_000)
        stamps = msgspec.structs.replace(request.stamps, due_ns=0)
        late = msgspec.structs.replace(request, stamps=stamps)
        due = msgspec.structs.replace(FOUR, streams=None, arrival="constant", rate_rps=1.0)
        assert window_value([late], due) == pytest.approx(11 / 2.5)

    def test_has_no_value_where_a_request_has_none(self) -> None:
        unknown = a_request(
            usage=msgspec.structs.replace(a_request().usage, completion_tokens=None)
        )
        assert window_value([a_request(), unknown], FOUR) is None
        assert window_value([], FOUR) is None

    def test_gives_one_number_a_window(self, load: Load) -> None:
        found = window_values(load(FOUR, windows=3).turns, FOUR)
        assert len(found) == 3
        assert found[0] == pytest.approx(found[1], rel=1e-6)


class TestWaiting:
    def test_counts_from_when_a_request_was_due(self) -> None:
        request = a_request(first_s=0.5, tokens=11, gap_s=0.1, start_ns=1_000_000_000)
        stamps = msgspec.structs.replace(request.stamps, due_ns=250_000_000)
        late = msgspec.structs.replace(request, stamps=stamps)
        assert value(late, EACH) == pytest.approx(1.5)
        assert value(late, DUE) == pytest.approx(2.25)

    def test_that_is_not_recorded_has_no_number(self) -> None:
        stamps = msgspec.structs.replace(a_request().stamps, due_ns=None)
        assert value(msgspec.structs.replace(a_request(), stamps=stamps), DUE) is None


class TestAVerdict:
    def test_on_one_boot_rests_on_windows(self, load: Load) -> None:
        run = Run([load(FOUR, windows=5, lasting=lambda window, _turn: 1.0 + window / 100)])
        (verdict,) = assert_throughput(run, at_least_tps=40)
        assert (verdict.word, verdict.scope) == ("PASS", "this boot only")
        assert verdict.comparison is not None
        assert (verdict.comparison.replicate, verdict.comparison.n) == ("window", 5)
        with pytest.raises(Regression):
            assert_throughput(run, at_least_tps=90)

    def test_of_two_windows_is_none(self, load: Load) -> None:
        (verdict,) = assert_throughput(Run([load(FOUR, windows=2)]), at_least_tps=40)
        assert verdict.word == "INCONCLUSIVE"

    def test_of_latency_takes_each_window_s_quantile(self, load: Load) -> None:
        run = Run([load(EACH, windows=4, lasting=lambda window, _turn: 1.0 + window / 100)])
        assert len(run.windows) == 4
        (verdict,) = assert_latency(run, p50_s=2.0)
        assert verdict.comparison is not None
        assert (verdict.word, verdict.comparison.replicate) == ("PASS", "window")

    def test_over_boots_rests_on_boots(self, load: Load) -> None:
        boots = []
        for number in range(3):
            boot = load(FOUR, windows=2, lasting=lambda w, _t, n=number: 1.0 + (w + n) / 100)
            arm = msgspec.structs.replace(boot.arm, boot_id=f"b{number}")
            requests = tuple(
                msgspec.structs.replace(each, boot_id=arm.boot_id) for each in boot.requests
            )
            boots.append(msgspec.structs.replace(boot, arm=arm, requests=requests))
        (verdict,) = assert_throughput(Run(boots), at_least_tps=40)
        assert verdict.comparison is not None
        assert (verdict.comparison.replicate, verdict.comparison.n) == ("boot", 3)


class TestWhatStandsBeside:
    def test_tells_all_together_from_each(self, load: Load) -> None:
        from pytest_llmperf.analysis.beside import numbers_beside  # noqa: PLC0415 - one test's subject

        told = dict(numbers_beside(Run([load(EACH)])))
        assert told["each request: wall-clock throughput"] == "16.0 tok/s"
        assert told["requests in flight, mean"].endswith("(peak 4)")
        together = told["all requests together: output tokens a second"]
        assert float(together.split()[0]) > 3 * 16

    def test_tells_offered_from_achieved(self, load: Load) -> None:
        from pytest_llmperf.analysis.beside import numbers_beside  # noqa: PLC0415 - one test's subject

        told = dict(numbers_beside(Run([load(DUE)])))
        assert told["offered requests a second"] == "2 (declared 2)"
        assert told["achieved requests a second"] == "2"


class TestConnections:
    def test_beyond_this_process_are_refused_before_anything_is_sent(self) -> None:
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        with pytest.raises(UsageError) as caught:
            check_connections(limit, server_pid=None)
        assert caught.value.what == (f"This process may not open {limit:,} connections at once.")
        assert caught.value.evidence.startswith(f"Its limit of open files is {limit:,}, it has ")
        assert caught.value.next_step.startswith("Raise the limit (ulimit -n ")

    def test_beyond_a_server_of_ours_are_refused(self, tmp_path: Path) -> None:
        server = tmp_path / "7"
        (server / "fd").mkdir(parents=True)
        (server / "limits").write_text(
            "Limit                     Soft Limit           Hard Limit           Units     \n"
            "Max open files            100                  4096                 files     \n"
        )
        with pytest.raises(UsageError) as caught:
            check_connections(40, server_pid=7, proc=tmp_path)
        assert str(caught.value) == (
            "The server may not open 40 connections at once.\n"
            "Its limit of open files is 100, it has 0 open, and 64 are kept in reserve.\n"
            "Raise the limit (ulimit -n 104) before the run, or ask for fewer at once."
        )
        check_connections(36, server_pid=7, proc=tmp_path)

    def test_of_a_server_that_cannot_be_asked_are_not_refused(self, tmp_path: Path) -> None:
        check_connections(40, server_pid=8, proc=tmp_path)
