"""The claim that a budget holds for every conversation: green, red, open, invalid, and replayed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pytest_llmperf import record
from pytest_llmperf.budget import Budget
from pytest_llmperf.denominator import TIME_TO_FIRST_TOKEN
from pytest_llmperf.errors import EvidenceError, InvalidMeasurement, Regression, UsageError
from pytest_llmperf.evidence import Evidence
from pytest_llmperf.gate import Gate
from pytest_llmperf.run import Run
from pytest_llmperf.shapes import Space, assert_budget_holds
from pytest_llmperf.testing import a_measurement, a_request, a_session, an_engine
from pytest_llmperf.workload import Prompts

SPACE = Space(turns=2, tools=2, words=1024, step=64)
SECOND_NS = 1_000_000_000


class Line:
    """Measures without an engine: a millisecond a word, so many turns, one second apart."""

    def __init__(self, *, turns: int = 8, cached: int = 0, known: int | None = None) -> None:
        self.gate = Gate("perf_suites/test_shapes.py::test_shapes", TIME_TO_FIRST_TOKEN)
        self.turns = turns
        self.cached = cached
        self.known = known
        self.measured: list[str] = []
        self.first_s: Callable[[int, int], float] = lambda words, _: words / 1000

    def __call__(self, engine: Any, workload: Any) -> Run:  # noqa: ANN401 - what it stands for
        call = len(self.measured)
        if call == self.known:
            raise EvidenceError("There is no more.", "", "")
        self.measured.append(workload.name)
        return Run([self.arm(workload, call)])

    def arm(self, workload: Prompts, call: int) -> Any:  # noqa: ANN401 - a measured arm
        words = len(workload.items[0].messages[-1]["content"].split())
        side = record.Arm(
            name="candidate", boot_id="b0", engine="gemma", denominator=TIME_TO_FIRST_TOKEN
        )
        start = a_measurement(
            arms=(side,),
            turns=self.turns,
            workload=workload.name,
            workload_digest=workload.digest,
        )
        sent = [
            a_request(
                first_s=self.first_s(words, call) * (1 + number / 1000),
                start_ns=(1 + call * self.turns + number) * 5 * SECOND_NS,
                request_id=f"r{number}",
                measurement_id="m0",
                arm="candidate",
                boot_id="b0",
                cached=self.cached,
                prompt_tokens=words * 2,
                prompt=workload.name,
                position=number,
            )
            for number in range(self.turns)
        ]
        end = record.MeasurementEnd(measurement_id="m0", completed=True)
        engine = an_engine(declared=record.Declared())
        return Evidence([a_session(), engine, start, *sent, end]).measured("m0")[0]


def held(line: Line, limit: float | Budget, **options: Any) -> str | None:  # noqa: ANN401
    (verdict,) = assert_budget_holds(line, line, SPACE, p50_s=limit, within_s=1e9, **options)  # type: ignore[arg-type]
    return verdict.word


def test_a_fair_budget_holds_for_the_slowest_conversation_that_was_tried() -> None:
    line = Line()
    assert held(line, 3.0) == "PASS"
    (row,) = line.gate.rows
    assert row.verdict.claim == (
        "p50 of time_to_first_token at most 3.00 s, up to 2 earlier turns, 2 tools, 1,024 words; "
        "the slowest one: 2 earlier turns, 2 tools, 1,024 words"
    )
    assert row.findings[0] == "7 probes: 7 PASS"


def test_a_budget_that_long_prompts_break_is_red_with_the_smallest_length() -> None:
    line = Line()
    with pytest.raises(Regression) as caught:
        held(line, 0.5)
    assert caught.value.what == (
        "REGRESS: p50 of time_to_first_token at most 0.500 s; the smallest conversation that "
        "breaks it: 0 earlier turns, 0 tools, 512 words (1024 prompt tokens)"
    )
    assert line.measured[-1] == "0 earlier turns, 0 tools, 512 words"
    assert line.measured.count(line.measured[-1]) == 2


def test_a_counterexample_that_fresh_prompts_do_not_confirm_is_none() -> None:
    line = Line()
    calls: dict[int, set[int]] = {}

    def first_s(words: int, call: int) -> float:
        """Slow in the first probe of a length, quick in every later one."""
        calls.setdefault(words, set()).add(call)
        return words / 1000 if len(calls[words]) == 1 else 0.01

    line.first_s = first_s
    assert held(line, 1.0) == "INCONCLUSIVE"
    (verdict,) = line.gate.verdicts
    assert verdict.reason.endswith("was over the limit, and was not again with fresh prompts")
    told = [each.rpartition(" ")[2] for each in line.gate.rows[0].findings[1:]]
    assert told.count("REGRESS") == 1


def test_a_probe_that_was_not_cold_makes_the_claim_invalid() -> None:
    line = Line(cached=32)
    with pytest.raises(InvalidMeasurement):
        held(line, 0.5)
    assert len(line.measured) == 1


def test_a_missing_budget_is_not_judged_and_measures_nothing() -> None:
    line = Line()
    missing = Budget(name="shapes.p50", limit=None, profile="here")
    assert held(line, missing) is None
    assert line.measured == []


def test_a_budget_of_the_machine_is_a_limit() -> None:
    assert held(Line(), Budget(name="shapes.p50", limit=3.0, profile="here")) == "PASS"


def test_too_few_turns_to_ever_be_red_are_refused() -> None:
    with pytest.raises(UsageError) as caught:
        held(Line(turns=6), 0.5)
    assert str(caught.value) == (
        "With 6 turns a conversation no budget can be broken.\n"
        "Even if all were over a median's limit, chance does that once in 64 times, and the level "
        "is 0.01.\n"
        "Plan 7 turns or more in the marker, or select fewer gates at once: they share the run's "
        "alpha."
    )


def test_a_search_without_time_is_open() -> None:
    line = Line()
    (verdict,) = assert_budget_holds(line, line, SPACE, p50_s=3.0, most_probes=3)  # type: ignore[arg-type]
    assert verdict.word == "INCONCLUSIVE"
    assert verdict.reason == "the search ended before enough conversations were tried"


def test_the_time_is_that_of_the_evidence() -> None:
    line = Line()
    with pytest.raises(Regression):
        assert_budget_holds(line, line, SPACE, p50_s=0.5, within_s=100.0)  # type: ignore[arg-type]
    assert len(line.measured) <= 5


def test_a_replay_of_a_run_that_was_cut_short_ends_where_it_did() -> None:
    line = Line(known=3)
    assert held(line, 3.0) == "INCONCLUSIVE"


def test_a_replay_without_any_probe_is_an_error() -> None:
    with pytest.raises(EvidenceError):
        held(Line(known=0), 3.0)


def test_a_round_that_only_records_searches_nothing() -> None:
    line = Line()
    line.gate.rounds = [0, 1]
    assert assert_budget_holds(line, line, SPACE, p50_s=0.5) == []  # type: ignore[arg-type]
    assert (line.measured, line.gate.has_asserted) == ([], True)
