"""What a person asks of a history on the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_llmperf.benchmark_files import this_machine
from pytest_llmperf.history.__main__ import main

if TYPE_CHECKING:
    from tests.history.conftest import Runs

GATE = "perf/test_router.py::test_turn"
Ask = Callable[..., list[str]]


@pytest.fixture
def ask(runs: Runs) -> Ask:
    def asked(*arguments: str, code: int = 0) -> list[str]:
        told: list[str] = []
        assert main(["--history", str(runs.history), *arguments], told.append) == code
        return told

    return asked


COUNTED = "wall, request, cold, 1: t_last_token - t_sent"
DENOMINATOR = f"({COUNTED})"
RATIO = f"({COUNTED}) / ({COUNTED}) by profile"


def test_a_list_shows_every_session_with_its_number_and_why_it_counts(runs: Runs, ask: Ask) -> None:
    runs.recorded("s1")
    runs.recorded("s2", *runs.records(reference=2.0), day=1, word="REGRESS")
    assert ask("list") == [
        GATE,
        f"  2026-06-01T00:00:00+00:00  s1  candidate  0.360 s  {DENOMINATOR}  3 boots  recorded",
        *(
            f"  2026-06-02T00:00:00+00:00  s2  {series}  {number}  {denominator}  3 boots  "
            "excluded: REGRESS, not accepted"
            for series, number, denominator in (
                ("candidate", "0.360 s", DENOMINATOR),
                ("ratio", "2.00x", f"({RATIO})"),
                ("reference", "0.720 s", DENOMINATOR),
            )
        ),
    ]


def test_a_regression_is_accepted_and_an_anchor_pinned(runs: Runs, ask: Ask) -> None:
    runs.recorded("s1", word="REGRESS")
    assert ask("accept", GATE, "--reason", "worth it", "--who", "ada") == [f"accepted {GATE} in s1"]
    assert ask("anchor", GATE, "--reason", "release", "--label", "v1", "--who", "ada") == [
        f"anchor v1 of {GATE}: 1 session"
    ]
    told = ask("list")
    assert told[1].endswith("  accepted: worth it")
    assert told[2].startswith("  anchor v1: release (ada, ")


def test_a_retired_gate_is_off_the_roll(runs: Runs, ask: Ask) -> None:
    runs.recorded("s1", day=-1000)
    assert ask("retire", GATE, "--reason", "merged", "--who", "ada") == [f"retired {GATE}"]
    assert ask("list")[0] == f"{GATE} (not on the roll)"


def test_a_refusal_is_told_whole_and_is_a_failure(
    runs: Runs, ask: Ask, capsys: pytest.CaptureFixture[str]
) -> None:
    runs.recorded("s1")
    assert ask("accept", GATE, "--reason", "worth it", "--who", "ada", code=1) == []
    assert capsys.readouterr().err == (
        f"{GATE} has no such regression to accept.\n"
        "Waiting to be accepted: nothing.\n"
        f"Known gates: {GATE}.\n"
    )


def test_a_rebuild_fails_when_something_does_not_count(runs: Runs, ask: Ask) -> None:
    runs.recorded("s1")
    assert ask("rebuild") == [f"1 gate in {runs.history}"]
    bad = runs.recorded("s2", day=1) / "evidence.jsonl"
    bad.write_text("")
    assert ask("rebuild", code=1)[1].startswith("does not count: sessions/s2/evidence.jsonl: ")


def test_evidence_that_nobody_judged_is_added_as_far_as_it_proves_itself(
    runs: Runs, ask: Ask
) -> None:
    wrong = runs.records(gate="perf/test_b.py::test_b", tag="b", declared_prompt_tokens=4096)
    folder = runs.write("s1", *runs.records(), *wrong)
    assert ask("add", str(folder)) == [
        "history: 1 gate of session s1 entered",
        (
            "not entered: perf/test_b.py::test_b: "
            "INVALID: 8 of 8 turns have a prompt of undeclared length."
        ),
    ]
    assert runs.found() == ["s1"]


def test_too_few_boots_are_added_where_that_is_asked_for(runs: Runs, ask: Ask) -> None:
    folder = runs.write("s1", *runs.records([1.0]))
    ask("add", str(folder), code=1)
    assert ask("add", str(folder), "--boots", "1") == ["history: 1 gate of session s1 entered"]


def test_old_results_of_pytest_benchmark_are_imported_and_labelled(
    runs: Runs, ask: Ask, tmp_path: Path
) -> None:
    content: dict[str, Any] = {
        "machine_info": this_machine(),
        "benchmarks": [{"fullname": GATE, "stats": {"median": 0.25}}],
        "datetime": "2025-01-01T00:00:00+00:00",
    }
    file = tmp_path / "0001_old.json"
    file.write_text(json.dumps(content), encoding="utf-8")
    (told,) = ask("import", str(file))
    assert told.startswith("history: 1 gate of session benchmark-")
    (line,) = ask("list")[1:]
    assert line.endswith(
        "  candidate  0.250 s  (pytest-benchmark: median over rounds of one call's "
        "duration in seconds)  one number from another tool, no boots behind it  "
        "recorded: one number from another tool, no boots behind it"
    )
    ask("import", str(file), code=1)


def test_a_history_that_is_not_there_is_no_empty_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nowhere = tmp_path / "nope"
    assert main(["--history", str(nowhere), "list"]) == 1
    assert capsys.readouterr().err == (
        f"There is no history in {nowhere}.\n"
        "The folder does not exist.\n"
        "Name it with --history, or record into it with pytest --llmperf-record.\n"
    )
