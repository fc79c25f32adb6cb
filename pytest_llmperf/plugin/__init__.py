"""Pytest's side: options, marker lines, the check at collection, outcomes, and the exit status.

Fixtures are in ``fixtures``; what a gate's verdict is, in ``verdict``; the table, in ``report``.
Nothing here imports scipy, httpx or vllm: a test run that does not use this plugin pays nothing.
"""

from __future__ import annotations

import json
from collections.abc import Generator
from typing import Any

import pytest

from pytest_llmperf import declaration, markers
from pytest_llmperf.errors import LlmperfError
from pytest_llmperf.plugin import options
from pytest_llmperf.plugin.fixtures import (
    budget,
    engine,
    gemma,
    gemma_autoregressive,
    llmperf,
    llmperf_round,
    llmperf_session,
)
from pytest_llmperf.plugin.items import declare, forgotten, is_ours, round_of
from pytest_llmperf.plugin.keys import (
    DECLARATION,
    GATE,
    GATES,
    LINES,
    ORDINARY,
    ROUNDS,
    SESSION,
    SETTINGS,
    WARNINGS,
)

__all__ = [  # pytest finds fixtures by name in the plugin's own module
    "budget",
    "engine",
    "gemma",
    "gemma_autoregressive",
    "llmperf",
    "llmperf_round",
    "llmperf_session",
]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    options.add(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers with their keywords."""
    for name in markers.MARKERS:
        config.addinivalue_line("markers", declaration.signature(name))
    config.addinivalue_line(
        "markers",
        "llmperf: every test that measures has it by itself: -m 'not llmperf' leaves them out",
    )
    config.stash[GATES] = []
    config.stash[ORDINARY] = 0
    config.stash[LINES] = ()
    config.stash[ROUNDS] = options.rounds(config)


@pytest.hookimpl(trylast=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run every test that uses this plugin once for each boot, where there are several."""
    rounds = metafunc.config.stash[ROUNDS]
    if rounds > 1 and "llmperf_round" in metafunc.fixturenames:
        names = [f"boot{number}" for number in range(1, rounds + 1)]
        metafunc.parametrize(
            "llmperf_round", range(rounds), indirect=True, scope="session", ids=names
        )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Check every declaration of the whole run before ``-m`` deselects and before any boot."""
    for item in filter(is_ours, items):
        item.add_marker("llmperf")
    problems = [
        line for item in items for line in (declare(item) if is_ours(item) else forgotten(item))
    ]
    if problems:
        items.clear()  # pytest goes on to its next hook, whose error would hide this one
        count = f"{len(problems)} wrong declaration{'s' if len(problems) > 1 else ''}"
        raise pytest.UsageError("\n".join([f"llmperf: {count}; nothing was booted.", *problems]))
    if config.getoption("--llmperf-mode") != "quick" and not config.getoption("--llmperf-replay"):
        _check_roll(config, items)
        more = _confirmations(items)
        items += more
        told = pytest.CollectReport(nodeid="", outcome="passed", longrepr=None, result=[*more])
        config.hook.pytest_collectreport(report=told)  # else they are missing among the collected


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Where gates are selected, read settings and profile now, so that a typo costs no boot."""
    gates = [item for item in session.items if DECLARATION in item.stash]
    if not gates:
        return
    declared = {}
    for item in gates:
        item.stash[GATE].rounds.append(round_of(item))
        declared[item.stash[GATE].node_id] = item.stash[DECLARATION]
    from pytest_llmperf.plugin import collection  # noqa: PLC0415 - only where gates are selected

    try:
        settings = session.config.stash[SETTINGS] = options.settings(session.config)
        selected = [gate for gate in session.config.stash[GATES] if gate.is_selected]
        session.config.stash[WARNINGS] = collection.check(selected, declared, settings)
    except LlmperfError as error:
        raise pytest.UsageError(f"llmperf: {error}") from None


def pytest_report_collectionfinish(config: pytest.Config, items: list[pytest.Item]) -> list[str]:
    """Say what is about to be measured, where gates are selected."""
    settings = config.stash.get(SETTINGS, None)
    if settings is None:
        return []
    warned = [f"llmperf: {line}" for line in config.stash.get(WARNINGS, ())]
    if settings.replay is not None:
        return [f"llmperf: judging recorded evidence in {settings.replay}", *warned]
    where = ", ".join(f"{name} at {url}" for name, url in settings.attach.items())
    engines = f"attached: {where}" if where else f"profile {settings.profile}"
    from pytest_llmperf.plugin import outcome  # noqa: PLC0415 - only where gates are selected

    tests = [item.function for item in items if isinstance(item, pytest.Function)]
    told = "; nothing is booted" if settings.dry_run else f"; evidence in {settings.evidence}"
    return [
        f"llmperf: {engines}; mode {settings.mode}{told}",
        *(f"llmperf: warning: {each}" for each in outcome.misspelt(settings, tests)),
        *warned,
    ]


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """In plan mode, and in a dry run, print in place of running anything."""
    settings = session.config.stash.get(SETTINGS, None)
    if settings is None or not settings.only_tells:
        return True if session.config.getoption("--llmperf-dry-run") else None
    from pytest_llmperf.plugin import outcome  # noqa: PLC0415 - only where nothing is run

    declared = {
        item.stash[GATE].node_id: item.stash[DECLARATION]
        for item in session.items
        if DECLARATION in item.stash
    }
    if settings.dry_run:
        asked = [getattr(item, "fixturenames", ()) for item in session.items]
        try:
            outcome.show_rehearsal(session.config, declared, asked, settings)
        except LlmperfError as error:
            raise pytest.UsageError(f"llmperf: {error}") from None
    else:
        outcome.show_plan(session.config, declared, settings)
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[Any]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Give a gate's report the outcome of its verdict."""
    report = yield
    if GATE in item.stash and DECLARATION not in item.stash:
        from pytest_llmperf.plugin import outcome  # noqa: PLC0415 - only where gates are selected

        outcome.decide_confirmation(item.stash[GATE], report, call.excinfo)
    if DECLARATION in item.stash:
        from pytest_llmperf.plugin import outcome  # noqa: PLC0415 - only where gates are selected

        outcome.decide(item.stash[GATE], report, call.excinfo)
        if report.when == "call":
            item.user_properties.append(("llmperf", json.dumps(item.stash[GATE].summary())))
            report.user_properties = list(item.user_properties)
    if report.failed and not hasattr(report, "llmperf"):
        item.config.stash[ORDINARY] += 1
    return report


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    """Give a verdict its own category, letter and word."""
    if not hasattr(report, "llmperf"):
        return None
    from pytest_llmperf.plugin import outcome  # noqa: PLC0415 - only where gates are selected

    return outcome.status(report)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Generator[None, None, None]:
    """Stop every engine, then set the exit status from the verdicts."""
    _close(session.config)
    _distrust(session.config)
    _remember(session)
    _record(session.config)
    yield
    settings = session.config.stash.get(SETTINGS, None)
    if settings is None and _workers_were_invalid(session.config):
        session.exitstatus = 11
    if settings is not None and not session.config.option.collectonly and not settings.only_tells:
        session.exitstatus = _exit_status(session.config, int(session.exitstatus))


@pytest.hookimpl(tryfirst=True)
def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config
) -> None:
    """Print the closing table."""
    gates = [gate for gate in config.stash[GATES] if gate.was_run]
    for report in () if gates else terminalreporter.stats.get("invalid", ()):
        terminalreporter.write_line(str(report.longrepr))  # a worker's: its table stays there
    if gates:
        from pytest_llmperf.plugin import outcome  # noqa: PLC0415 - only where gates are selected

        status = _exit_status(config, int(exitstatus))
        outcome.show(terminalreporter, gates, status, config.stash[SETTINGS])
        for line in config.stash[LINES]:
            terminalreporter.write_line(line)
    elif SESSION in config.stash and config.stash[SETTINGS].replay is None:
        terminalreporter.write_line(f"evidence: {config.stash[SETTINGS].evidence}")


@pytest.hookimpl(optionalhook=True)
def pytest_benchmark_update_json(config: pytest.Config, output_json: dict[str, Any]) -> None:
    """Add the facts of this place to what pytest-benchmark stores of our gates."""
    if config.stash[GATES]:
        from pytest_llmperf import place  # noqa: PLC0415 - only where gates are declared

        output_json["llmperf"] = place.facts()


@pytest.hookimpl(optionalhook=True)
def pytest_benchmark_compare_machine_info(compared_benchmark: dict[str, Any]) -> None:
    """Refuse to compare with a file of our gates that was made in another place."""
    if "llmperf" in compared_benchmark:
        from pytest_llmperf import benchmark_view  # noqa: PLC0415 - only for files of our gates

        try:
            benchmark_view.refuse_foreign(compared_benchmark["llmperf"])
        except LlmperfError as error:
            raise pytest.UsageError(f"llmperf: {error}") from None


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop what an interrupted session left running."""
    _close(config)


def _workers_were_invalid(config: pytest.Config) -> bool:
    """Whether workers of pytest-xdist, which hold the gates, found one of them INVALID."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    return reporter is not None and bool(reporter.stats.get("invalid"))


def _exit_status(config: pytest.Config, pytest_status: int) -> int:
    from pytest_llmperf.plugin import outcome  # noqa: PLC0415 - only where gates are selected

    gates = config.stash[GATES]
    return outcome.exit_status(
        gates,
        pytest_status=pytest_status,
        strict=config.stash[SETTINGS].strict,
        ordinary_failures=config.stash[ORDINARY],
    )


def _close(config: pytest.Config) -> None:
    """Stop every engine and close the evidence; does nothing the second time."""
    session = config.stash.get(SESSION, None)
    if session is not None:
        session.close()


def _remember(session: pytest.Session) -> None:
    """Let ``--lf`` run again what is undecided: pytest forgets what it takes for skipped."""
    cached = session.config.pluginmanager.get_plugin("lfplugin")
    failed = getattr(cached, "lastfailed", None)
    if isinstance(failed, dict):
        for item in session.items if hasattr(session, "items") else ():
            if GATE in item.stash and item.stash[GATE].word == "INCONCLUSIVE":
                failed[item.nodeid] = True


def _distrust(config: pytest.Config) -> None:
    """Make every verdict INVALID where the instrument contradicted itself, those before too."""
    session = config.stash.get(SESSION, None)
    if session is not None and session.distrust:
        from pytest_llmperf.plugin import outcome  # noqa: PLC0415 - only where gates are selected

        gates = config.stash[GATES]
        outcome.distrust(gates, session.distrust[0])


def _record(config: pytest.Config) -> None:
    """Let this run join the history, where that is asked."""
    settings = config.stash.get(SETTINGS, None)
    if settings is None or not settings.record or SESSION not in config.stash:
        return
    from pytest_llmperf.reference import record_in  # noqa: PLC0415 - only where it is asked

    words = {gate.node_id: gate.word for gate in config.stash[GATES] if gate.was_run}
    try:
        config.stash[LINES] += record_in(settings.history, settings.evidence, words)
    except LlmperfError as error:  # the verdicts stand, and the run is not a success
        config.stash[LINES] += (f"history: this session could not join it. {error}",)
        config.stash[ORDINARY] += 1


def _check_roll(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A gate that history knows of a collected file must still be there, or be retired."""
    root = options.history(config)
    gates = [item.stash[GATE].node_id for item in items if GATE in item.stash]
    if not gates or not root.is_dir():
        return
    from pytest_llmperf.history import History  # noqa: PLC0415 - only in gate mode

    try:
        with History(root) as past:
            past.check_roll({gate.partition("::")[0] for gate in gates}, set(gates))
            problems = past.problems
    except LlmperfError as error:
        raise pytest.UsageError(f"llmperf: {error}") from None
    config.stash[LINES] += tuple(f"history: does not count: {each}" for each in problems)


def _confirmations(items: list[pytest.Item]) -> list[pytest.Item]:
    """One item for each gate against the past, after all others."""
    from pytest_llmperf.plugin.confirmation import confirm_item  # noqa: PLC0415 - only in gate mode

    made: dict[str, pytest.Item] = {}
    for item in items:
        if GATE in item.stash and isinstance(item, pytest.Function):
            gate = item.stash[GATE]
            confirm = None if gate.node_id in made else confirm_item(item, gate)
            if confirm is not None:
                made[gate.node_id] = confirm
    return list(made.values())
