"""A load from its marker to its verdict, and again from its evidence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_llmperf import proof
from pytest_llmperf.proof import load
from tests.plugin.conftest import Run

GATES = """
import pytest
from pytest_llmperf import assert_latency, assert_speedup, assert_throughput

@pytest.mark.aggregate_throughput(streams=4, turns=40)
def test_together(llmperf, gemma, questions) -> None:
    assert_throughput(llmperf(gemma, questions), at_least_tps=1)

@pytest.mark.cached_turn(arrival="poisson", rate_rps=80, turns=40)
def test_arrivals(llmperf, gemma, talks) -> None:
    assert_latency(llmperf(gemma, talks), p50_s=30)

@pytest.mark.cached_turn(streams=2, turns=20)
@pytest.mark.speedup(of="time_to_first_token", factor="prefix")
def test_cached_at_once(llmperf, gemma, talks) -> None:
    assert_speedup(llmperf.compare(gemma, talks), at_least=0.01)
"""


@pytest.fixture(autouse=True)
def _steadily_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rules on how steadily this machine sends have tests of their own."""
    timed = (load.streams_not_held, load.schedule_not_kept, load.saturated)
    rules = tuple(rule for rule in proof.RULES if rule not in timed)
    monkeypatch.setattr(proof, "RULES", rules)


class TestALoad:
    def test_passes_on_the_windows_of_one_boot_and_shows_each_beside_all(
        self, suite: pytest.Pytester, attached: Run
    ) -> None:
        suite.makepyfile(GATES)
        result = attached("-k", "together")
        result.assert_outcomes(passed=1)
        result.stdout.fnmatch_lines(
            [
                "PASS *",
                "*4 streams, first wave*",
                "*this boot only, 5 windows*",
                "*requests in flight, mean*",
                "*each request: wall-clock throughput*",
            ]
        )

    def test_under_a_schedule_counts_from_when_requests_were_due(
        self, suite: pytest.Pytester, attached: Run
    ) -> None:
        suite.makepyfile(GATES)
        result = attached("-k", "arrivals")
        result.assert_outcomes(passed=1)
        result.stdout.fnmatch_lines(
            [
                "*Poisson arrivals at*",
                "*all requests together: output*",
                "*offered requests a second*",
                "*achieved requests a second*",
            ]
        )

    def test_of_two_arms_is_compared_by_windows(
        self, suite: pytest.Pytester, attached: Run
    ) -> None:
        suite.makepyfile(GATES)
        result = attached("-k", "cached_at_once")
        result.assert_outcomes(passed=1)
        result.stdout.fnmatch_lines(["*this boot only, 5 blocks*"])

    def test_replays_to_the_same_words(
        self, suite: pytest.Pytester, attached: Run, evidence: Callable[[], Path]
    ) -> None:
        suite.makepyfile(GATES)
        first = attached()
        first.assert_outcomes(passed=3)
        again = suite.runpytest_inprocess(
            "-p", "no:cacheprovider", f"--llmperf-replay={evidence().parent}"
        )
        again.assert_outcomes(passed=3)
        told = [line for line in first.outlines if line.startswith("PASS ")]
        assert told
        assert [line for line in again.outlines if line.startswith("PASS ")] == told

    def test_does_not_replay_in_other_windows(
        self, suite: pytest.Pytester, attached: Run, evidence: Callable[[], Path]
    ) -> None:
        suite.makepyfile(GATES)
        attached("-k", "together")
        suite.makepyfile(GATES.replace("streams=4, turns=40", "streams=4, turns=40, windows=4"))
        again = suite.runpytest_inprocess(
            "-p", "no:cacheprovider", "-k", "together", f"--llmperf-replay={evidence().parent}"
        )
        assert again.ret == 11
        again.stdout.fnmatch_lines(["*declares 4 windows; it was recorded in 5 windows.*"])
