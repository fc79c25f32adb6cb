"""Gates against the past: screened by history, confirmed on fresh boots, recorded on request."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_llmperf.evidence import NAME, read
from pytest_llmperf.history import History
from tests.plugin.conftest import Run

GATE = """
import pytest
from pytest_llmperf import assert_no_regression

@pytest.mark.cached_turn(turns=8, warmup=1, detect=0.5)
def test_turn(llmperf, gemma, talks) -> None:
    assert_no_regression(llmperf(gemma, talks))
"""


PROFILE = """
extends = "miniature"
drafter = false
"""


@pytest.fixture
def profiled(suite: pytest.Pytester, attached: Run) -> Run:
    """Run the gate against the healthy server, of which a profile speaks."""
    suite.makepyfile(GATE)
    (suite.path / "scripted.toml").write_text(PROFILE)
    return lambda *arguments: attached("--llmperf-profile=scripted.toml", *arguments)


def _record(run: Run) -> None:
    assert run("--llmperf-mode=gate", "--llmperf-record").ret == 0


def _earlier(folder: Path, times: int) -> None:
    """Let history know as many earlier sessions as alike as can be to the only one so far."""
    (session,) = folder.glob(f".llmperf/*/{NAME}")
    first, _, rest = session.read_text(encoding="utf-8").partition("\n")
    for number in range(times):
        changes = {"session_id": f"s{number}", "started_at": f"2026-01-0{number + 1}T12:00:00Z"}
        earlier = folder / "earlier" / f"s{number}"
        earlier.mkdir(parents=True)
        text = f"{json.dumps(json.loads(first) | changes)}\n{rest}"
        (earlier / NAME).write_text(text, encoding="utf-8")
        with History(folder / ".llmperf-history") as history:
            history.record_session(earlier, dict.fromkeys(read(earlier).gates, "PASS"))


class TestInQuickMode:
    def test_it_is_inconclusive_and_says_where_it_lies(self, profiled: Run) -> None:
        result = profiled()
        assert result.parseoutcomes() == {"inconclusive": 1}
        result.stdout.fnmatch_lines(["*no past session of this gate in*"])

    def test_it_is_12_when_strict(self, profiled: Run) -> None:
        assert profiled("--llmperf-strict").ret == 12


class TestInPlanMode:
    def test_what_is_stored_is_planned_and_the_others_are_named_together(
        self, suite: pytest.Pytester, profiled: Run, rebooted: None
    ) -> None:
        _record(profiled)
        suite.makepyfile(test_new=GATE)
        result = profiled("--llmperf-mode=plan")
        assert result.ret == 0
        result.stdout.fnmatch_lines(
            [
                "*::test_turn: * boots of * turns, *",
                "nothing is stored of 1 gate in *; record a few sessions with --llmperf-record:",
                "  test_new.py::test_turn",
            ]
        )


class TestInGateMode:
    def test_without_a_past_it_is_inconclusive_and_recorded_on_request(
        self, profiled: Run, rebooted: None
    ) -> None:
        result = profiled("--llmperf-mode=gate", "--llmperf-record")
        assert result.parseoutcomes() == {"recorded": 2, "inconclusive": 1, "unsuspected": 1}
        result.stdout.fnmatch_lines(["history: 1 gate of session * entered*"])

    def test_with_six_sessions_the_screen_speaks_and_an_attached_server_is_not_confirmed(
        self, suite: pytest.Pytester, profiled: Run, rebooted: None
    ) -> None:
        _record(profiled)
        _earlier(suite.path, 5)
        result = profiled("--llmperf-mode=gate")
        assert result.ret == 0
        outcomes = result.parseoutcomes()
        assert (outcomes["recorded"], outcomes["unsuspected"]) == (2, 1)
        assert outcomes.keys() & {"passed", "inconclusive"}
        result.stdout.fnmatch_lines(["*this build*"])


def test_a_gate_that_history_knows_and_that_is_gone_is_an_error(
    suite: pytest.Pytester, profiled: Run, rebooted: None
) -> None:
    _record(profiled)
    (found,) = suite.path.glob("test_a_gate*.py")
    found.write_text(found.read_text().replace("def test_turn", "def test_renamed"))
    result = profiled("--llmperf-mode=gate")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*::test_turn*", "*retire*"])


def test_a_decision_that_cannot_be_read_stops_a_gate_before_anything_is_sent(
    suite: pytest.Pytester, profiled: Run, rebooted: None
) -> None:
    _record(profiled)
    with (suite.path / ".llmperf-history" / "decisions.jsonl").open("a") as file:
        file.write("<<<<<<< HEAD\n")
    result = profiled("--llmperf-mode=gate")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["*decisions cannot all be read.", "*decisions.jsonl, line 1, is no decision: *"]
    )


def test_a_past_session_that_cannot_be_read_is_named_under_the_table(
    suite: pytest.Pytester, profiled: Run, rebooted: None
) -> None:
    _record(profiled)
    (held,) = (suite.path / ".llmperf-history").rglob(NAME)
    held.write_text("{")
    result = profiled("--llmperf-mode=gate", "--llmperf-record")
    result.stdout.fnmatch_lines([f"history: does not count: *{NAME}*", "history: *"])
