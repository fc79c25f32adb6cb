"""What a measurement hands back: one arm as measured, or two, ready to be asserted on.

Everything is computed from records when it is asked for; nothing here is stored or decided.
"""

from __future__ import annotations

import math
from functools import cached_property

import msgspec

from pytest_llmperf import assumption, proof, sample
from pytest_llmperf.denominator import BUILT_IN, Denominator
from pytest_llmperf.errors import UsageError
from pytest_llmperf.evidence import Measured
from pytest_llmperf.gate import Gate
from pytest_llmperf.proof import Contradiction


class Levels(msgspec.Struct, frozen=True, kw_only=True):
    """The error rates a gate is judged at; they come from the profile."""

    alpha: float = assumption.ALPHA
    """Chance of a false REGRESS at the boundary."""
    beta: float = assumption.BETA
    """Chance of a false PASS at the boundary."""


class Run:
    """One arm of one measurement under its denominator.

    ``run.under("decode_throughput")`` is the same turns counted by another denominator.
    """

    def __init__(
        self,
        measured: Measured,
        *,
        denominator: Denominator | None = None,
        levels: Levels | None = None,
        gate: Gate | None = None,
    ) -> None:
        self.measured = measured
        self.denominator = denominator or measured.arm.denominator
        self.levels = levels or Levels()
        self.gate = gate

    def under(self, name: str) -> Run:
        """Count the same turns by another named denominator's clock and unit.

        :raises UsageError: no denominator of that name.
        """
        if name not in BUILT_IN:
            raise UsageError(
                f"There is no denominator {name!r}.",
                f"The named ones are {', '.join(BUILT_IN)}.",
                "Use one of them, or mark the test with denominator(clock=..., unit=...).",
            )
        own = self.denominator
        other = msgspec.structs.replace(BUILT_IN[name], prefix=own.prefix, streams=own.streams)
        return Run(self.measured, denominator=other, levels=self.levels, gate=self.gate)

    @cached_property
    def values(self) -> tuple[float, ...]:
        """Each completed turn's number in the denominator's unit, in the order sent."""
        drafts = self.measured.arm.declared.draft_tokens
        found = (sample.value(turn, self.denominator, drafts) for turn in self.measured.turns)
        return tuple(value for value in found if value is not None)

    @cached_property
    def contradictions(self) -> tuple[Contradiction, ...]:
        """Why this is no measurement of what it declares; empty where it is."""
        return proof.contradictions(self.measured, self.denominator)

    @property
    def evidence(self) -> str:
        """What proves the number, in words."""
        return proof.evidence_line(self.measured)

    @property
    def findings(self) -> tuple[str, ...]:
        """What a reader should know that does not make the run invalid."""
        found = proof.findings(self.measured, self.denominator)
        return tuple(each.text for each in found)


class Pair:
    """Two arms of one measurement that differ in one declared factor."""

    def __init__(self, candidate: Run, reference: Run, *, of: Denominator, factor: str) -> None:
        self.candidate = candidate
        self.reference = reference
        self.of = of
        self.factor = factor

    def log_ratios(self, clock: Denominator | None = None) -> list[float]:
        """Per block, the log of how many times better the candidate is than the reference.

        :raises InvalidMeasurement: a block without one of its arms.
        """
        of = clock or self.of
        candidate, reference = (
            _by_block(arm.measured, of) for arm in (self.candidate, self.reference)
        )
        if of.higher_is_better:
            return assumption.block_log_ratios(candidate, reference)
        return assumption.block_log_ratios(reference, candidate)

    def ratio(self, clock: Denominator | None = None) -> float | None:
        """How many times better the candidate is; ``None`` where a turn has no value."""
        of = clock or self.of
        arms = (self.candidate.measured, self.reference.measured)
        if any(len(_by_block(arm, of)) < len(arm.turns) for arm in arms):
            return None
        logs = self.log_ratios(of)
        return math.exp(sum(logs) / len(logs))

    @property
    def is_interleaved(self) -> bool:
        """Whether the arms' turns alternated, so that drift cancels."""
        candidate, reference = self.candidate.measured, self.reference.measured
        return candidate.measurement.measurement_id == reference.measurement.measurement_id

    @property
    def arms(self) -> str:
        """What is compared with what, in words."""
        if self.factor == "prefix":
            return "cached against cold prefix"
        return f"{self.candidate.measured.arm.engine} against {self.reference.measured.arm.engine}"

    @cached_property
    def contradictions(self) -> tuple[Contradiction, ...]:
        """Each arm against its own declaration, then both against the one factor."""
        arms = (*self.candidate.contradictions, *self.reference.contradictions)
        between = proof.pair_contradictions(
            self.candidate.measured, self.reference.measured, self.factor, self.of
        )
        return tuple(dict.fromkeys((*arms, *between)))

    @property
    def evidence(self) -> str:
        """What proves both arms, in words."""
        return f"{self.candidate.evidence}; against {self.reference.evidence}"

    @property
    def findings(self) -> tuple[str, ...]:
        """What a reader should know of either arm or of both, each once."""
        between = proof.pair_findings(
            self.candidate.measured, self.reference.measured, self.factor, self.of
        )
        texts = (
            *self.candidate.findings,
            *self.reference.findings,
            *(each.text for each in between),
        )
        return tuple(dict.fromkeys(texts))


def _by_block(measured: Measured, of: Denominator) -> list[tuple[int, float]]:
    drafts = measured.arm.declared.draft_tokens
    values = ((turn.block, sample.value(turn, of, drafts)) for turn in measured.turns)
    return [(block, value) for block, value in values if block is not None and value is not None]
