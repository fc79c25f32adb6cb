"""Several boots: rounds record, the last one judges, and fewer than planned decide nothing."""

from __future__ import annotations

import pytest

from tests.plugin.conftest import Run

GATE = """
import pytest
from pytest_llmperf import assert_latency, assert_speedup

@pytest.mark.cached_turn(turns=8, warmup=1)
@pytest.mark.parametrize("kind", ["a", "b-c"])
def test_turn(llmperf, gemma, talks, kind) -> None:
    run = llmperf(gemma, talks)
    {assertion}
"""


def _gate(assertion: str) -> str:
    return GATE.format(assertion=assertion)


def test_rounds_before_the_last_only_record_and_the_last_judges_all(
    suite: pytest.Pytester, attached: Run, rebooted: None
) -> None:
    suite.makepyfile(_gate("assert_latency(run, p50_s=30)"))
    result = attached("--llmperf-mode=gate", "-v")
    assert result.parseoutcomes() == {"recorded": 4, "passed": 2}
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        [
            "*::test_turn?a-boot1? RECORDED*",
            "*::test_turn?b-c-boot1? RECORDED*",
            "*::test_turn?a-boot2? RECORDED*",
            "*::test_turn?b-c-boot3? PASSED*",
            "PASS *",
            "*this build, 3 boots*",
            "PASS *",
            "2 PASS, 0 REGRESS, 0 INCONCLUSIVE, 0 INVALID; exit status 0",
        ]
    )


def test_a_red_gate_is_red_once_and_by_its_boots(
    suite: pytest.Pytester, attached: Run, rebooted: None
) -> None:
    suite.makepyfile(_gate("assert_latency(run, p50_s=1e-4)"))
    result = attached("--llmperf-mode=gate", "-k", "a-boot")
    assert result.parseoutcomes() == {"recorded": 2, "failed": 1, "deselected": 3}
    assert result.ret == 10


def test_fewer_rounds_than_planned_are_inconclusive(
    suite: pytest.Pytester, attached: Run, rebooted: None
) -> None:
    suite.makepyfile(_gate("assert_latency(run, p50_s=30)"))
    result = attached("--llmperf-mode=gate", "-k", "boot1")
    assert result.parseoutcomes() == {"inconclusive": 2, "deselected": 4}
    result.stdout.fnmatch_lines(["*1 of 3 planned boots were measured*"])


def test_two_boots_are_too_few_for_a_build(
    suite: pytest.Pytester, attached: Run, rebooted: None
) -> None:
    suite.makepyfile(_gate("assert_latency(run, p50_s=30)"))
    result = attached("--llmperf-mode=gate", "--llmperf-boots=2", "-k", "a-boot")
    assert result.parseoutcomes() == {"recorded": 1, "inconclusive": 1, "deselected": 2}
    result.stdout.fnmatch_lines(["*2 boots are too few for a claim about a build*"])


def test_rounds_on_one_attached_process_are_one_boot(suite: pytest.Pytester, attached: Run) -> None:
    suite.makepyfile(_gate("assert_latency(run, p50_s=30)"))
    result = attached("--llmperf-mode=gate", "-k", "a-boot")
    assert result.parseoutcomes() == {"recorded": 2, "inconclusive": 1, "deselected": 3}
    result.stdout.fnmatch_lines(["*3 rounds were measured on 1 boot, and only boots are*"])


def test_a_round_that_asserts_nothing_is_invalid(
    suite: pytest.Pytester, attached: Run, rebooted: None
) -> None:
    suite.makepyfile(_gate("pass"))
    result = attached("--llmperf-mode=gate", "-k", "a-boot1")
    assert result.parseoutcomes() == {"invalid": 1, "deselected": 5}


def test_a_quick_run_has_one_round_and_no_suffix(
    suite: pytest.Pytester, attached: Run, rebooted: None
) -> None:
    suite.makepyfile(_gate("assert_latency(run, p50_s=30)"))
    result = attached("-v")
    result.stdout.fnmatch_lines(["*::test_turn?a? PASSED*"])


def test_all_recorded_rounds_are_replayed_together(
    suite: pytest.Pytester, attached: Run, rebooted: None
) -> None:
    suite.makepyfile(_gate("assert_latency(run, p50_s=30)"))
    attached("--llmperf-mode=gate", "-k", "a-boot")
    result = suite.runpytest_inprocess("--llmperf-replay=.llmperf", "-k", "test_turn[a]")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*this build, 3 boots*"])
