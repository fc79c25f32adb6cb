"""How a gate's verdict becomes pytest's outcome, category, exit status and closing table.

The verdict is reached in ``verdict`` while the test runs; here it is only carried to pytest.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_llmperf import budget, profile
from pytest_llmperf.declaration import Declaration
from pytest_llmperf.errors import (
    InvalidMeasurement,
    LlmperfError,
    Regression,
)
from pytest_llmperf.gate import Gate
from pytest_llmperf.plugin.fixtures import ENGINE_FIXTURES
from pytest_llmperf.proof import Contradiction
from pytest_llmperf.report import markdown, render
from pytest_llmperf.run import Levels
from pytest_llmperf.settings import Settings
from pytest_llmperf.units import counted
from pytest_llmperf.verdict import EXIT_NONE_JUDGED, Objection, Word, exit_code

if TYPE_CHECKING:
    from _pytest._code import ExceptionInfo

RECORDED = "RECORDED"
"""A round that only recorded; a later one judges it."""

SUSPECT = "SUSPECT"
"""A gate that its confirm item is yet to judge."""

CLEARED = "NOT SUSPECTED"
"""A confirm item that had nothing to do."""

_CATEGORIES: dict[str, tuple[str, str, str]] = {
    RECORDED: ("recorded", "r", RECORDED),
    SUSPECT: ("suspect", "s", SUSPECT),
    CLEARED: ("unsuspected", "-", CLEARED),
    "REGRESS": ("failed", "R", "REGRESS"),
    "INCONCLUSIVE": ("inconclusive", "?", "INCONCLUSIVE"),
    "INVALID": ("invalid", "I", "INVALID"),
}
"""Category, letter and word of each verdict other than PASS. A regression fails as any test
does, so that pytest's own tools see it; the others never count as passed."""


def distrust(gates: Sequence[Gate], why: Contradiction) -> None:
    """Make every verdict of the run INVALID: its instrument contradicted itself."""
    objection = Objection(why.kind, why.reason, why.evidence, why.remedy)
    for gate in gates:
        gate.distrust(objection)


def misspelt(settings: Settings, tests: Sequence[Callable[..., Any]]) -> list[str]:
    """Budgets of the profile whose names are almost what tests ask for."""
    asked = [name for each in tests for name in budget.asked_for(each)]
    return budget.misspelt(asked, profile.load(settings.profile).budgets)


def decide(
    gate: Gate,
    report: pytest.TestReport,
    raised: ExceptionInfo[BaseException] | None,
    *,
    judged_here: bool = True,
) -> None:
    """Set one report's outcome from what the gate's rows came to.

    :param judged_here: whether all of them are this report's own.
    """
    error = None if raised is None else raised.value
    if report.when == "teardown" or (report.when == "setup" and report.passed):
        return
    gate.was_run = True
    if isinstance(error, Regression):
        _mark(report, "REGRESS", _told(report, error))
    elif isinstance(error, LlmperfError):  # whatever kept it from measuring what it declares
        _note(gate, error)
        _mark(report, "INVALID", _told(report, error))
    elif report.failed:
        gate.has_failed_otherwise = True
    elif judged_here and report.passed and gate.word in {"REGRESS", "INVALID"}:
        caught = next(each for each in gate.verdicts if each.word == gate.word)
        report.outcome = "failed"
        _mark(report, gate.word, f"{gate.word}, though the test caught the error: {caught.reason}")
    elif report.passed:
        _decide_without_error(gate, report)


def decide_confirmation(
    gate: Gate, report: pytest.TestReport, raised: ExceptionInfo[BaseException] | None
) -> None:
    """Set the outcome of a confirm item from what its gate's rows have come to."""
    error = None if raised is None else raised.value
    if report.when == "teardown" or (report.when == "setup" and report.passed):
        return
    if report.skipped:
        report.llmperf = CLEARED  # type: ignore[attr-defined]  # travels with the report
    else:
        decide(gate, report, raised if error is not None else None, judged_here=False)


def status(report: pytest.TestReport) -> tuple[str, str, str] | None:
    """The category, letter and word of a report that carries a verdict."""
    word = getattr(report, "llmperf", None)
    return None if word is None else _CATEGORIES[word]


def exit_status(
    gates: Sequence[Gate], *, pytest_status: int, strict: bool, ordinary_failures: int
) -> int:
    """The run's exit status from the words of the gates that were selected."""
    selected = [gate for gate in gates if gate.is_selected]
    words = [gate.word for gate in selected if gate.word is not None]
    return exit_code(
        words,
        strict=strict,
        ordinary_failures=ordinary_failures,
        selected=len(selected),
        judged=len(words),
        pytest_status=pytest_status,
    )


def show(
    reporter: pytest.TerminalReporter, gates: Sequence[Gate], status: int, settings: Settings
) -> None:
    """Print the closing table."""
    rows = [row for gate in gates for row in gate.rows]
    if not rows:
        _point(reporter, gates, status, settings)
        return
    writer = reporter._tw  # noqa: SLF001 - the terminal's width has no public name
    reporter.section("llmperf", sep="=")
    text = render(
        rows,
        width=writer.fullwidth,
        colour=writer.hasmarkup,
        ascii=not _speaks_unicode(writer),
        exit_status=status,
    )
    reporter.write_line(text)
    if settings.summary is not None:
        _summarise(reporter, settings.summary, markdown(rows, status))
    _point(reporter, gates, status, settings)


def _point(
    reporter: pytest.TerminalReporter, gates: Sequence[Gate], status: int, settings: Settings
) -> None:
    """Name each gate that is neither green nor red, why nothing was judged, and the evidence."""
    for gate in gates:
        first = next((each for each in gate.verdicts if each.word == gate.word), None)
        if gate.word in {"INVALID", "INCONCLUSIVE"} and first is not None:
            reporter.write_line(f"{gate.word} {gate.node_id} - {first.reason}")
    if status == EXIT_NONE_JUDGED:
        reporter.write_line(
            f"exit status {status}: {counted(len(gates), 'gate')} ran and none of them was judged; "
            "they were skipped, or no limit is known here (-rs says why). Nothing was shown "
            "to be good."
        )
    if settings.replay is None and settings.evidence.is_dir():
        reporter.write_line(f"evidence: {os.path.relpath(settings.evidence)}")


def _summarise(reporter: pytest.TerminalReporter, path: Path, text: str) -> None:
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(text + "\n")
    except OSError as error:
        reporter.write_line(f"llmperf: the summary {path} was not written: {error}")


def show_plan(
    config: pytest.Config, declared: Mapping[str, Declaration], settings: Settings
) -> None:
    """Print how much each selected gate has to measure, by its own history."""
    from pytest_llmperf import planning  # noqa: PLC0415 - only in plan mode
    from pytest_llmperf.rehearsal import BOOT_S  # noqa: PLC0415 - likewise

    levels = Levels.of(profile.load(settings.profile))
    detects = {gate: each.plan.detect for gate, each in declared.items() if each.plan.detect}
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None:
        reporter.section("llmperf plan", sep="=")
        for line in planning.lines(
            settings.history, list(declared), levels=levels, detects=detects, boot_s=BOOT_S
        ):
            reporter.write_line(line)


def show_rehearsal(
    config: pytest.Config,
    declared: Mapping[str, Declaration],
    asked: Sequence[Sequence[str]],
    settings: Settings,
) -> None:
    """Print what the selected tests would boot and measure.

    :param asked: the fixtures of each selected test.
    :raises UsageError: an engine of theirs could not be booted as its profile says.
    """
    from pytest_llmperf import rehearsal  # noqa: PLC0415 - only in a dry run

    names = {name for each in asked for name in each}
    wanted = rehearsal.Wanted(
        engines={name: speculates for name, speculates in ENGINE_FIXTURES.items() if name in names},
        factory=sum("engine" in each for each in asked),
        gates=declared,
        rounds=settings.rounds,
    )
    found = rehearsal.lines(
        profile.load(settings.profile),
        wanted,
        history=settings.history,
        attached=settings.attach,
        against=None if settings.against is None else profile.load(settings.against),
    )
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None:
        reporter.section("llmperf dry run", sep="=")
        for line in found:
            reporter.write_line(line)


def _decide_without_error(gate: Gate, report: pytest.TestReport) -> None:
    if gate.is_recording and gate.has_asserted:
        _set_aside(report, RECORDED, "recorded; the last round judges")
        return
    if gate.is_pending:
        _set_aside(report, SUSPECT, "suspected; fresh boots judge it")
        return
    if not gate.rows and not gate.has_asserted:
        silent = InvalidMeasurement(
            "This test declares a denominator and asserts nothing.",
            "It ended without assert_latency, assert_throughput or assert_speedup.",
            "Assert on what it measures, or take its marker away.",
        )
        _note(gate, silent)
        report.outcome = "failed"
        _mark(report, "INVALID", _told(report, silent))
    elif gate.word is None:
        _skip(report, "; ".join(verdict.reason for verdict in gate.verdicts))
    elif gate.word == "INCONCLUSIVE":
        doubts = [each.reason for each in gate.verdicts if each.word == "INCONCLUSIVE"]
        _set_aside(report, "INCONCLUSIVE", f"INCONCLUSIVE: {'; '.join(doubts)}")


def _note(gate: Gate, error: LlmperfError) -> None:
    """Give an error that came before any assertion a row of its own."""
    if gate.word != "INVALID":
        gate.add_error(error)


def _mark(report: pytest.TestReport, word: Word, told: str) -> None:
    report.llmperf = word  # type: ignore[attr-defined]  # travels with the report
    report.longrepr = told


def _set_aside(report: pytest.TestReport, word: str, reason: str) -> None:
    _skip(report, reason)
    report.llmperf = word  # type: ignore[attr-defined]  # travels with the report


def _skip(report: pytest.TestReport, reason: str) -> None:
    """Neither passed nor failed, as pytest knows it from skipped tests."""
    path, line, _ = report.location
    report.outcome = "skipped"
    report.longrepr = (path, (line or 0) + 1, reason)


def _told(report: pytest.TestReport, error: LlmperfError) -> str:
    path, line, _ = report.location
    return f"{path}:{(line or 0) + 1}: {error}"


def _speaks_unicode(writer: Any) -> bool:  # noqa: ANN401 - pytest's TerminalWriter is private
    encoding = getattr(writer._file, "encoding", None) or "ascii"  # noqa: SLF001 - no public name
    return encoding.lower().replace("-", "").startswith("utf")
