"""A suspect is judged on fresh boots, all suspects together, and its row says what came of it."""

from __future__ import annotations

from random import Random
from typing import Literal

import msgspec
import pytest

from pytest_llmperf import record
from pytest_llmperf.denominator import SINGLE_STREAM
from pytest_llmperf.evidence import Measured
from pytest_llmperf.gate import Gate
from pytest_llmperf.run import Levels, Run
from pytest_llmperf.suspects import (
    MOST_PAIRS,
    Past,
    Pending,
    confirm_all,
    forced_row,
    quick_row,
    recorded_row,
    screened_row,
    unconfirmed,
)
from pytest_llmperf.testing import a_measurement, a_request, an_engine, some_counters

TURNS = 12
LEVELS = Levels(tolerance=0.02, detect=0.10)
SECOND_NS = 1_000_000_000


def _boot(name: str, wall_s: float, *, arm: str = "candidate", failed: bool = False) -> Measured:
    """One sound boot whose turns all take about so many seconds."""
    start = a_measurement(turns=TURNS, measurement_id=f"m-{name}")
    gap_s = wall_s / 20
    turns = tuple(
        a_request(
            request_id=f"{name}-{number}",
            first_s=gap_s * 5,
            tokens=16,
            gap_s=gap_s,
            start_ns=(number + 1) * 100 * SECOND_NS,
            role="turn",
            arm=arm,
            boot_id=name,
            measurement_id=start.measurement_id,
            position=number,
            prompt=f"p{number}",
            failure=record.Failure(kind="reset", detail="gone") if failed else None,
        )
        for number in range(TURNS)
    )
    after = some_counters(
        when="after",
        boot_id=name,
        at_ns=10_000 * SECOND_NS,
        requests_finished=float(TURNS),
        prompt_tokens=100.0 * TURNS,
        prefix_queries=100.0 * TURNS,
        generation_tokens=16.0 * TURNS,
    )
    stated = msgspec.structs.replace(start.arms[0], name=arm, boot_id=name)
    return Measured(
        measurement=msgspec.structs.replace(start, arms=(stated,)),
        arm=stated,
        engine=an_engine(boot_id=name),
        requests=turns,
        before=some_counters(boot_id=name),
        after=after,
        end=record.MeasurementEnd(measurement_id=start.measurement_id, completed=True),
    )


class _Fresh:
    """Fresh pairs of boots whose candidate is slower by a factor."""

    arms: Literal["paired", "pooled"] = "paired"

    def __init__(self, factor: float, *, sd: float = 0.01, seed: int = 1) -> None:
        self._factor = factor
        self._noise = Random(seed)
        self._sd = sd
        self.pairs = 0

    def __call__(self, pair: int) -> tuple[Measured, Measured]:
        self.pairs += 1
        walls = [self._factor, 1.0]
        mine, other = (wall * (1 + self._noise.gauss(0, self._sd)) for wall in walls)
        return (
            _boot(f"c{pair}", mine),
            _boot(f"r{pair}", other, arm="reference"),
        )


def _pending(fresh: _Fresh, name: str = "test_gate.py::test_gate") -> Pending:
    run = Run([_boot("b0", 1.0)], levels=LEVELS)
    gate = Gate(name, SINGLE_STREAM)
    gate.add(forced_row(run, gate, 0.5, None))
    return Pending(gate=gate, row=0, run=run, p=0.5, levels=LEVELS, retake=fresh)


def _judged(*pending: Pending) -> list[str | None]:
    confirm_all(pending, alpha=0.01, beta=0.05)
    return [each.gate.rows[0].verdict.word for each in pending]


class TestAConfirmation:
    def test_of_a_slow_candidate_is_red_and_says_by_how_much(self) -> None:
        pending = _pending(_Fresh(1.3))
        assert _judged(pending) == ["REGRESS"]
        row = pending.gate.rows[0]
        assert row.number.startswith("1.3")
        assert row.arms == "gemma against gemma"
        assert "slower than the reference by more than 2 %" in row.verdict.reason

    def test_of_the_same_thing_passes_and_stops_early(self) -> None:
        fresh = _Fresh(1.0)
        assert _judged(_pending(fresh)) == ["PASS"]
        assert fresh.pairs < MOST_PAIRS

    def test_of_noise_is_inconclusive_after_the_last_pair(self) -> None:
        fresh = _Fresh(1.04, sd=0.2)
        pending = _pending(fresh)
        assert _judged(pending) == ["INCONCLUSIVE"]
        assert fresh.pairs == MOST_PAIRS
        assert pending.gate.rows[0].verdict.would_decide is not None

    def test_judges_suspects_together_and_measures_only_the_open_ones_further(self) -> None:
        clear, noisy = _Fresh(1.0), _Fresh(1.04, sd=0.2)
        words = _judged(_pending(clear, "a"), _pending(noisy, "b"))
        assert words == ["PASS", "INCONCLUSIVE"]
        assert clear.pairs < noisy.pairs

    def test_on_boots_that_did_not_measure_is_invalid(self) -> None:
        class Broken(_Fresh):
            def __call__(self, pair: int) -> tuple[Measured, Measured]:
                candidate, reference = super().__call__(pair)
                spoilt = msgspec.structs.replace(candidate, end=None)
                return spoilt, reference

        broken = Broken(1.0)
        assert _judged(_pending(broken)) == ["INVALID"]
        assert broken.pairs == 1  # no further one could change that


class TestARecordedConfirmation:
    def _word(self, *fresh: tuple[Measured, Measured]) -> str | None:
        run = Run([_boot("b0", 1.0)], levels=LEVELS)
        gate = Gate("g", SINGLE_STREAM)
        row = recorded_row(run, gate, 0.5, fresh, levels=LEVELS, alpha=0.01)
        return row.verdict.word

    def test_that_was_cut_short_is_open_however_bad_it_looked(self) -> None:
        slow = _Fresh(3.0)
        assert self._word(slow(0), slow(1)) == "INCONCLUSIVE"
        assert self._word(*map(slow, range(4))) == "REGRESS"

    def test_that_ended_at_a_pair_that_did_not_measure_is_invalid(self) -> None:
        candidate, reference = _Fresh(1.0)(0)
        assert self._word((msgspec.structs.replace(candidate, end=None), reference)) == "INVALID"


class TestTheScreen:
    def _run(self, wall_s: float) -> Run:
        noise = Random(3)
        walls = [wall_s * (1 + noise.gauss(0, 0.01)) for _ in range(3)]
        return Run([_boot(f"b{n}", wall) for n, wall in enumerate(walls)], levels=LEVELS)

    def _past(self) -> Past:
        noise = Random(4)
        return Past(
            sessions=tuple(tuple(noise.gauss(0, 0.01) for _ in range(3)) for _ in range(10))
        )

    def test_passes_what_is_as_it_was(self) -> None:
        row, weight = screened_row(self._run(1.0), Gate("g", SINGLE_STREAM), 0.5, self._past())
        assert (row.verdict.word, weight) == ("PASS", None)

    def test_never_calls_a_regression_it_only_suspects(self) -> None:
        row, weight = screened_row(self._run(1.5), Gate("g", SINGLE_STREAM), 0.5, self._past())
        assert row.verdict.word == "INCONCLUSIVE"
        assert weight is not None
        assert row.verdict.reason.startswith("suspected by the screen (1.5")

    @pytest.mark.parametrize("sessions", [0, 3])
    def test_without_enough_of_a_past_decides_nothing(self, sessions: int) -> None:
        past = Past(sessions=self._past().sessions[:sessions], missing="no past" * (not sessions))
        row, weight = screened_row(self._run(1.0), Gate("g", SINGLE_STREAM), 0.5, past)
        assert row.verdict.word == "INCONCLUSIVE"
        assert weight is not None

    def test_says_what_would_decide_where_nothing_can_be_confirmed(self) -> None:
        row, _ = screened_row(self._run(1.5), Gate("g", SINGLE_STREAM), 0.5, self._past())
        lost = unconfirmed(row, "there is no reference", "a reference")
        assert "not confirmed: there is no reference" in lost.verdict.reason
        assert lost.verdict.would_decide == "a reference"
        assert unconfirmed(row, "it is attached").verdict.would_decide == (
            "fresh boots of candidate and reference"
        )


def test_one_boot_says_where_it_lies_and_decides_nothing() -> None:
    run = Run([_boot("b0", 1.2)], levels=LEVELS)
    past = Past(sessions=((0.0,), (0.0,)))
    row = quick_row(run, Gate("g", SINGLE_STREAM), 0.5, past)
    assert row.verdict.word == "INCONCLUSIVE"
    assert row.verdict.would_decide == "--llmperf-mode=gate, where it is measured"
    assert row.number.startswith("1.")
