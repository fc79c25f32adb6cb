"""What the machine disturbed is measured once more; what it disturbed twice is INVALID."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_llmperf import proof, session
from pytest_llmperf.declaration import declare
from pytest_llmperf.proof import Contradiction
from pytest_llmperf.proof.window import Window
from tests.plugin.conftest import Run

GATE = """
import pytest
from pytest_llmperf import assert_latency, assert_speedup

@pytest.mark.cached_turn(turns=8, warmup=1)
@pytest.mark.speedup(of="time_to_first_token", factor="prefix")
def test_turn(llmperf, gemma, talks) -> None:
    pair = llmperf.compare(gemma, talks)
    assert_latency(pair.candidate, p50_s=30)
"""


@pytest.fixture
def disturb(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Let something else run beside the first so many attempts."""

    def during(attempts: int) -> None:
        def rule(window: Window) -> Contradiction | None:
            if window.measured.measurement.attempt > attempts:
                return None
            return Contradiction(kind="noise", reason="A neighbour.", evidence="", remedy="Wait.")

        monkeypatch.setattr(proof, "RULES", (*proof.RULES, rule))
        monkeypatch.setattr(proof, "PASSING", (rule,))

    return during


def starts(evidence: Path) -> list[dict[str, Any]]:
    lines = map(json.loads, evidence.read_text().splitlines())
    return [each for each in lines if each["record"] == "measurement"]


def test_a_disturbed_measurement_is_made_again_on_its_boots_and_the_row_says_so(
    suite: pytest.Pytester,
    attached: Run,
    disturb: Callable[[int], None],
    evidence: Callable[[], Path],
) -> None:
    suite.makepyfile(GATE)
    disturb(1)
    result = attached()
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*measuring again: A neighbour."])
    note = "Measured again on the same boot, since the machine was disturbed the first time"
    assert note in " ".join(result.stdout.str().split())
    first, second = starts(evidence())
    assert (first.get("attempt", 1), second["attempt"]) == (1, 2)
    assert first["arms"] == second["arms"]
    again = suite.runpytest_inprocess("--llmperf-replay=.llmperf")
    assert again.ret == 0
    assert note in " ".join(again.stdout.str().split())


def test_a_measurement_that_is_disturbed_each_time_is_invalid(
    suite: pytest.Pytester,
    attached: Run,
    disturb: Callable[[int], None],
    evidence: Callable[[], Path],
) -> None:
    suite.makepyfile(GATE)
    disturb(99)
    result = attached()
    assert result.ret == 11
    result.stdout.fnmatch_lines(["*A neighbour.*"])
    assert len(starts(evidence())) == session.MOST_FIRST_ATTEMPTS


def test_a_drill_is_made_once_and_not_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    declared, _ = declare([("failover", (), {"streams": 2, "fault": "killed"})])
    made: list[int] = []

    def drill(_asked: object, _stage: str, attempt: int) -> str:
        made.append(attempt)
        return "m0"

    def rule(_window: Window) -> Contradiction:
        raise AssertionError("a switch has no turns to be asked about")

    monkeypatch.setattr(proof, "PASSING", (rule,))
    whole = SimpleNamespace(end=SimpleNamespace(completed=True))
    corridor: Any = SimpleNamespace(
        _measure=drill, _evidence=SimpleNamespace(measured=lambda _: (whole,)), tell=print
    )
    asked: Any = SimpleNamespace(declaration=declared)
    session.LiveSession._undisturbed(corridor, [asked], stage="judged", most=2)
    assert made == [1]
