"""One test's gates: the rows its assertions leave, and the word they come to together.

How rows are judged is in ``verdict``; how a word becomes pytest's outcome, in ``outcome``.
"""

from __future__ import annotations

from typing import Any

import msgspec

from pytest_llmperf.asserted import Claims, Shares
from pytest_llmperf.denominator import Denominator
from pytest_llmperf.errors import LlmperfError
from pytest_llmperf.report import Row
from pytest_llmperf.verdict import Objection, Verdict, Word, judge, worst


class Gate:
    """Collects the rows of one test, in the order in which they were asserted."""

    def __init__(self, node_id: str, denominator: Denominator) -> None:
        self.node_id = node_id
        self.denominator = denominator
        self.rows: list[Row] = []
        self.rounds: list[int] = []
        """The rounds that were selected, in order; the last one judges what all recorded."""
        self.planned_rounds = 1
        self.round = 0
        """The round that runs now."""
        self.has_confirmation = False
        """Whether an item follows that judges it on fresh boots when it is suspected."""
        self.is_pending = False
        """Whether it waits for that item."""
        self.has_asserted = False
        """Whether an assertion was reached in this round, judged or not."""
        self.was_run = False
        self.claims = Claims()
        """What its test asserts, as far as its code tells."""
        self.shares = Shares()
        """Its parts of the run's alpha."""
        self.checks = 1
        """Gates of this run, which share the instrument's check on itself."""
        self.has_failed_otherwise = False
        """An ordinary failure: neither a regression nor a measurement that is invalid."""

    @property
    def is_selected(self) -> bool:
        """Whether any of its rounds is to run."""
        return bool(self.rounds)

    @property
    def is_recording(self) -> bool:
        """Whether this round only records, for a later one to judge."""
        return bool(self.rounds) and self.round != self.rounds[-1]

    def begin(self, round_number: int) -> None:
        """Start a round."""
        self.round = round_number
        self.has_asserted = False

    def add(self, row: Row) -> None:
        """Take one row; its verdict may be any of the four words, or not judged."""
        self.rows.append(row)

    def add_error(self, error: LlmperfError) -> None:
        """Take an error that came before anything could be asserted: the gate is INVALID."""
        objection = Objection("error", error.what, error.evidence, error.next_step)
        denominator = self.denominator
        claim = f"a measurement of {denominator.name}"
        verdict = judge(None, [objection], claim=claim, scope="", unit=denominator.unit_text)
        gate = self.node_id.rpartition("/")[2]
        self.add(Row(gate=gate, verdict=verdict, denominator=denominator))

    def distrust(self, objection: Objection) -> None:
        """Make every row INVALID that was judged: the instrument itself is not to be trusted."""
        self.rows = [
            msgspec.structs.replace(row, verdict=_distrusted(row.verdict, objection))
            if row.verdict.word is not None
            else row
            for row in self.rows
        ]

    @property
    def verdicts(self) -> list[Verdict]:
        """Every row's verdict, those without a word included."""
        return [row.verdict for row in self.rows]

    @property
    def word(self) -> Word | None:
        """The worst word of all rows; ``None`` where nothing was judged."""
        return worst(self.verdicts)

    def summary(self) -> dict[str, Any]:
        """What goes to JUnit and other reporters: the word and each row's claim and numbers."""
        return {"verdict": self.word, "rows": [_row(verdict) for verdict in self.verdicts]}


def _distrusted(verdict: Verdict, objection: Objection) -> Verdict:
    return judge(None, [objection], claim=verdict.claim, scope=verdict.scope, unit=verdict.unit)


def _row(verdict: Verdict) -> dict[str, Any]:
    compared = verdict.comparison
    numbers = (
        {}
        if compared is None
        else {
            "estimate": compared.estimate,
            "low": compared.low,
            "high": compared.high,
            "n": compared.n,
        }
    )
    return {"verdict": verdict.word, "claim": verdict.claim, "scope": verdict.scope, **numbers}
