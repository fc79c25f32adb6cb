"""What is asserted of a burst: counts are facts, losses flatter nothing, the sum must come out."""

from __future__ import annotations

import msgspec
import pytest

from pytest_llmperf.analysis.onset import Onset
from pytest_llmperf.budget import Budget
from pytest_llmperf.claims import assert_burst
from pytest_llmperf.denominator import SINGLE_STREAM
from pytest_llmperf.errors import InvalidMeasurement, Regression, UsageError
from pytest_llmperf.fitness import MachineState, When
from pytest_llmperf.gate import Gate
from pytest_llmperf.run import Run
from pytest_llmperf.verdict import Verdict
from tests.burst.conftest import Make, answered, failed

PHASES: tuple[tuple[When, float], ...] = (("before", 0.2), ("during", 8.0), ("after", 6.1))
TEN = [answered(1.0 + number) for number in range(10)]


def words(verdicts: list[Verdict]) -> list[tuple[str | None, str]]:
    return [(each.word, each.claim) for each in verdicts]


class TestABurst:
    def test_that_is_answered_whole_passes_as_a_fact_of_this_burst(self, burst: Make) -> None:
        verdicts = assert_burst(burst(TEN))
        assert words(verdicts) == [
            ("PASS", "at least 10 of 10 requests complete"),
            ("PASS", "no request is lost"),
        ]
        assert {each.scope for each in verdicts} == {"this burst only"}

    def test_shows_the_machine_before_during_and_after(self, burst: Make) -> None:
        states = tuple(
            MachineState(measurement_id="m0", when=when, at_ns=at_ns, load=load, mhz=(2100.0,))
            for at_ns, (when, load) in enumerate(PHASES)
        )
        boot = msgspec.structs.replace(burst(TEN).measured, machine=states)
        gate = Gate("test_burst.py::test", boot.arm.denominator)
        assert_burst(Run([boot], gate=gate))
        assert gate.rows[0].findings == (
            "The machine before the burst: load 0.2, 2,100 MHz.",
            "The machine during the burst: load 8.0, 2,100 MHz.",
            "The machine after the burst: load 6.1, 2,100 MHz.",
        )

    def test_on_a_machine_that_was_not_watched_says_nothing_of_it(self, burst: Make) -> None:
        run = burst(TEN)
        run.gate = Gate("test_burst.py::test", run.denominator)
        assert_burst(run)
        assert run.gate.rows[0].findings == ()

    def test_that_lost_one_is_a_regression(self, burst: Make) -> None:
        with pytest.raises(Regression) as raised:
            assert_burst(burst([*TEN[:9], failed("reset")]), completed=9)
        assert str(raised.value).startswith("REGRESS: no request is lost")
        assert "9 completed + 0 refused + 0 not connected + 1 reset" in " ".join(
            str(raised.value).split()
        )

    def test_with_refusals_is_a_regression_where_all_must_complete(self, burst: Make) -> None:
        sent = [*TEN[:6], *[failed("refused", status=503)] * 4]
        with pytest.raises(Regression, match="at least 10 of 10 requests complete"):
            assert_burst(burst(sent))

    def test_with_refusals_passes_where_so_many_must_complete(self, burst: Make) -> None:  # F6
        sent = [*TEN[:6], *[failed("refused", status=503)] * 4]
        assert {each.word for each in assert_burst(burst(sent), completed=6)} == {"PASS"}

    def test_of_which_one_has_no_record_is_invalid_not_lost(self, burst: Make) -> None:
        with pytest.raises(InvalidMeasurement) as raised:
            assert_burst(burst(TEN, planned=12))
        text = " ".join(str(raised.value).split())
        assert "Not every request of the burst is accounted for: 10 completed" in text
        assert "= 10 of 12" in text
        assert "2 requests without a record." in text

    def test_of_more_requests_than_planned_is_invalid(self, burst: Make) -> None:
        with pytest.raises(InvalidMeasurement, match="2 requests more than were planned"):
            assert_burst(burst(TEN, planned=8))

    def test_over_several_boots_passes_only_if_each_of_them_does(self, burst: Make) -> None:
        good = assert_burst(burst(TEN, TEN, TEN))
        assert {each.scope for each in good} == {"each of 3 bursts"}
        with pytest.raises(Regression, match="at least 10 of 10"):
            assert_burst(burst(TEN, [*TEN[:9], failed("timeout", 60.0, 200)], TEN))


class TestALimitOnAWait:
    def test_is_passed_and_broken_clear_of_the_margin_and_else_undecided(self, burst: Make) -> None:
        assert assert_burst(burst(TEN), p99_s=12.6)[2].word == "PASS"
        assert assert_burst(burst(TEN), p99_s=10.1)[2].word == "INCONCLUSIVE"
        with pytest.raises(Regression, match=r"p99 from due to last token at most 7\.90 s"):
            assert_burst(burst(TEN), p99_s=7.9)

    def test_says_what_would_decide_it(self, burst: Make) -> None:
        verdict = assert_burst(burst(TEN), p99_s=10.1)[2]
        assert (
            verdict.reason == "10.0 s against 10.1 s is within 25 %, and one boot shows no spread"
        )
        assert verdict.would_decide == "3 boots or more (--llmperf-mode=gate)"

    def test_among_timeouts_cannot_pass_however_high_it_is(self, burst: Make) -> None:  # F7
        sent = [*TEN[:9], failed("timeout", 60.0, 200)]
        run = burst(sent)
        onset = Onset(run.measured)
        assert ("p99, due to last token", "> 60.0 s") in onset.beside
        with pytest.raises(Regression) as raised:
            assert_burst(run, completed=9, p99_s=500.0)
        assert "no request is lost" in str(raised.value)

    def test_that_this_machine_has_no_budget_for_is_not_judged(self, burst: Make) -> None:
        absent = Budget(name="burst.p99", limit=None, profile="spark")
        assert assert_burst(burst(TEN), p99_s=absent)[2].word is None

    def test_over_boots_takes_the_boots_as_replicates(self, burst: Make) -> None:
        verdict = assert_burst(burst(TEN, TEN[1:] + TEN[:1], TEN), p99_s=30.0)[2]
        assert (verdict.scope, verdict.word) == ("this build", "PASS")


class TestBesideABurst:
    def test_stand_its_queue_its_refused_share_and_its_rate(self, burst: Make) -> None:
        onset = Onset(burst([*TEN[:8], *[failed("refused", status=429)] * 2]).measured)
        assert dict(onset.beside) == {
            "accepted by the server": "8 of 10",
            "refused share": "20 %",
            "open at the server at once": "6",
            "p50, due to last token": "4.00 s",
            "p95, due to last token": "8.00 s",
            "p99, due to last token": "8.00 s",
            "median, due to first token": "4.50 s",
            "output tokens, whole burst": "10.0 tok/s",
            "preemptions": "2",
        }

    def test_what_was_not_measured_is_said_to_be_so(self, burst: Make) -> None:
        onset = Onset(burst([failed("refused", status=503)]).measured)
        assert dict(onset.beside)["output tokens, whole burst"] == "not measured"


class TestTheAssertion:
    def test_refuses_a_run_that_is_no_burst(self, burst: Make) -> None:
        run = Run(burst(TEN).boots, denominator=SINGLE_STREAM)
        with pytest.raises(UsageError) as raised:
            assert_burst(run)
        assert str(raised.value) == (
            "This assertion does not fit the denominator single_stream.\n"
            "It counts wall clock as the caller sees it, per request, cold prefix, proven, "
            "1 stream.\n"
            "Mark the test with burst(requests=...), or use another assertion."
        )

    @pytest.mark.parametrize("completed", [0, 11, True])
    def test_refuses_a_number_that_the_burst_does_not_have(
        self, burst: Make, completed: int
    ) -> None:
        with pytest.raises(UsageError) as raised:
            assert_burst(burst(TEN), completed=completed)
        assert str(raised.value) == (
            f"completed={completed!r} is no number of this burst's requests.\n"
            "10 requests arrive at once.\n"
            "Give 1 to 10, or leave it out: all of them."
        )
