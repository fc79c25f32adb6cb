"""What a measurement hands back: one arm as measured, or two, ready to be asserted on.

Everything is computed from records when it is asked for; nothing here is stored or decided.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cached_property
from statistics import fmean
from typing import Any

import msgspec

from pytest_llmperf import assumption, proof, record, sample
from pytest_llmperf.declaration import Declaration
from pytest_llmperf.denominator import BUILT_IN, Denominator
from pytest_llmperf.errors import UsageError
from pytest_llmperf.evidence import Measured
from pytest_llmperf.gate import Gate
from pytest_llmperf.load.in_flight import windows_of
from pytest_llmperf.profile import Profile
from pytest_llmperf.proof import Contradiction
from pytest_llmperf.workload import Workload


class Levels(msgspec.Struct, frozen=True, kw_only=True):
    """The error rates a gate is judged at; they come from the profile."""

    alpha: float = assumption.ALPHA
    """Chance of a false REGRESS at the boundary."""
    beta: float = assumption.BETA
    """Chance of a false PASS at the boundary."""
    tolerance: float = 0.02
    """A relative slow-down that is no regression."""
    detect: float = 0.10
    """A relative slow-down that a PASS must exclude."""

    @classmethod
    def of(cls, profile: Profile) -> Levels:
        """A profile's levels."""
        stated = profile.statistics
        return cls(
            alpha=stated.alpha, beta=stated.beta, tolerance=stated.tolerance, detect=stated.detect
        )


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """Where a run came from, so that the same thing can be measured again."""

    source: Any
    """The session: live, or recorded."""
    declaration: Declaration
    side: Any
    """The arm: a lease under a denominator."""
    workload: Workload
    call: int


class Run:
    """One arm as measured on one boot or several, under its denominator.

    ``run.under("decode_throughput")`` is the same turns counted by another denominator.
    """

    def __init__(
        self,
        boots: Sequence[Measured],
        *,
        denominator: Denominator | None = None,
        levels: Levels | None = None,
        gate: Gate | None = None,
        origin: Origin | None = None,
        notes: Sequence[str] = (),
        distrust: Sequence[Contradiction] = (),
    ) -> None:
        if not boots:
            raise UsageError(
                "A run needs at least one boot.",
                "It was made of no measurement.",
                "Hand it what Evidence.measured(...) gives.",
            )
        self.boots = tuple(boots)
        self.denominator = denominator or boots[-1].arm.denominator
        self.levels = levels or Levels()
        self.gate = gate
        self.origin = origin
        self.notes = tuple(notes)
        self.distrust = tuple(distrust)
        """Why nothing that this session measures can be trusted; empty where it can."""

    @property
    def measured(self) -> Measured:
        """The newest boot."""
        return self.boots[-1]

    @property
    def distinct_boots(self) -> int:
        """How many server processes these are; an attached server is one, however often used."""
        return len({_process(boot) for boot in self.boots})

    @property
    def turns(self) -> tuple[record.Request, ...]:
        """The turns of all boots."""
        return tuple(turn for boot in self.boots for turn in boot.turns)

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
        other = msgspec.structs.replace(
            BUILT_IN[name],
            prefix=own.prefix,
            streams=own.streams,
            arrival=own.arrival,
            rate_rps=own.rate_rps,
            ramp_s=own.ramp_s,
        )
        return self.recounted(other)

    def recounted(self, of: Denominator, boots: Sequence[Measured] | None = None) -> Run:
        """Count the same turns by another denominator; ``boots`` are the same with more known."""
        return self._again(boots or self.boots, of, self.levels)

    def at(self, levels: Levels) -> Run:
        """The same run, judged at other levels."""
        return self._again(self.boots, self.denominator, levels)

    def _again(self, boots: Sequence[Measured], of: Denominator, levels: Levels) -> Run:
        return Run(
            boots,
            denominator=of,
            levels=levels,
            gate=self.gate,
            origin=self.origin,
            notes=self.notes,
            distrust=self.distrust,
        )

    def keep(self, name: str, drawn: str) -> None:
        """Leave a picture (SVG) with the evidence, where this run is being recorded."""
        if self.origin is not None and self.gate is not None:
            self.origin.source.keep(self.gate.node_id, name, drawn)

    @cached_property
    def values(self) -> tuple[tuple[float, ...], ...]:
        """Per boot, each completed turn's number in the denominator's unit, in the order sent.

        Under the span clock, each window's.
        """
        return tuple(_values(boot, self.denominator) for boot in self.boots)

    @cached_property
    def windows(self) -> tuple[tuple[float, ...], ...]:
        """Per window of load on the newest boot: its turns' numbers, or the one of them together.

        Empty where turns follow one another.
        Turns that overlap share one queue and are not independent: of them the window is what is
        repeated on one boot.
        """
        if self.measured.measurement.windows is None:
            return ()
        if self.denominator.clock == "span":
            return tuple((value,) for value in self.values[-1])
        found = windows_of(self.measured.turns).values()
        drafts = self.measured.arm.declared.draft_tokens
        return tuple(_numbers(turns, self.denominator, drafts) for turns in found)

    @cached_property
    def contradictions(self) -> tuple[Contradiction, ...]:
        """Why this is no measurement of what it declares; empty where it is."""
        found = (proof.contradictions(boot, self.denominator) for boot in self.boots)
        return (*self.distrust, *_each_kind_once(found))

    @property
    def evidence(self) -> str:
        """What proves the number, in words; of several boots the last speaks."""
        line = proof.evidence_line(self.measured)
        return line if len(self.boots) == 1 else f"{len(self.boots)} boots, of the last {line}"

    @property
    def findings(self) -> tuple[str, ...]:
        """What a reader should know that does not make the run invalid."""
        found = (each for boot in self.boots for each in proof.findings(boot, self.denominator))
        return tuple(dict.fromkeys([*self.notes, *(each.text for each in found)]))


class Pair:
    """Two arms of one measurement that differ in one declared factor."""

    def __init__(self, candidate: Run, reference: Run, *, of: Denominator, factor: str) -> None:
        self.candidate = candidate
        self.reference = reference
        self.of = of
        self.factor = factor

    def log_ratios(self, clock: Denominator | None = None) -> list[list[float]]:
        """Per boot (or pair of boots), per block, the log of how many times better it is.

        :raises InvalidMeasurement: a block without one of its arms.
        """
        of = clock or self.of
        return [
            _block_ratios(candidate, reference, of)
            for candidate, reference in zip(self.candidate.boots, self.reference.boots, strict=True)
        ]

    def ratio(self, clock: Denominator | None = None) -> float | None:
        """How many times better the candidate is; ``None`` where a turn has no value."""
        of = clock or self.of
        boots = (*self.candidate.boots, *self.reference.boots)
        if any(len(_by_block(boot, of)) < replicates(boot, of) for boot in boots):
            return None
        per_boot = [fmean(logs) for logs in self.log_ratios(of)]
        return math.exp(fmean(per_boot))

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

    @property
    def claimed(self) -> str:
        """What an assertion of it claims something of."""
        return f"speed-up of {self.of.name} by {self.factor}"

    @property
    def runs(self) -> tuple[Run, ...]:
        """Both arms."""
        return self.candidate, self.reference

    @property
    def table(self) -> tuple[tuple[str, str], ...]:
        """What stands beside the ratio in place of its other clocks; nothing of two arms."""
        return ()

    @cached_property
    def contradictions(self) -> tuple[Contradiction, ...]:
        """Each arm against its own declaration, then both against the one factor."""
        return tuple(dict.fromkeys((*in_turn(self.runs), *self.between)))

    @property
    def between(self) -> tuple[Contradiction, ...]:
        """What makes their comparison invalid although each arm may be sound."""
        found = (
            proof.pair_contradictions(candidate, reference, self.factor, self.of)
            for candidate, reference in zip(self.candidate.boots, self.reference.boots, strict=True)
        )
        return _each_kind_once(found)

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
            *shared_drift(self.runs),
        )
        return tuple(dict.fromkeys(texts))


def in_turn(runs: Sequence[Run]) -> tuple[Contradiction, ...]:
    """What speaks against any of several arms whose turns alternated.

    Not a drift that they share: it is the machine's, and cancels in their ratios.
    """
    found = (each for run in runs for each in run.contradictions)
    if "own" in _drifts(runs):
        return tuple(found)
    return tuple(each for each in found if each.kind != proof.TREND)


def shared_drift(runs: Sequence[Run]) -> tuple[str, ...]:
    """A line on a drift that arms share, where they do."""
    drifts = _drifts(runs)
    if "shared" not in drifts or "own" in drifts:
        return ()
    return (
        "All arms got steadily faster together: the machine's drift, which cancels in a ratio.",
    )


def _drifts(runs: Sequence[Run]) -> list[str]:
    boots = zip(*(run.boots for run in runs), strict=False)
    of = [run.denominator for run in runs]
    return [proof.drift(zip(arms, of, strict=True)) for arms in boots]


def _process(boot: Measured) -> tuple[object, ...]:
    """What tells one server process from another."""
    if boot.engine is None or not boot.engine.attached:
        return (boot.arm.boot_id,)
    started = None if boot.before is None else boot.before.started_at
    return (boot.engine.url, started)


def _values(boot: Measured, of: Denominator) -> tuple[float, ...]:
    if of.clock == "span":
        return sample.window_values(boot.turns, of)
    return _numbers(boot.turns, of, boot.arm.declared.draft_tokens)


def _numbers(
    turns: Iterable[record.Request], of: Denominator, drafts: int | None
) -> tuple[float, ...]:
    found = (sample.value(turn, of, drafts) for turn in turns)
    return tuple(value for value in found if value is not None)


def _each_kind_once(
    per_boot: Iterable[Sequence[Contradiction]],
) -> tuple[Contradiction, ...]:
    """Of a contradiction that several boots show, the first boot's words."""
    found: dict[str, Contradiction] = {}
    for boot in per_boot:
        for each in boot:
            found.setdefault(each.kind, each)
    return tuple(found.values())


def _block_ratios(candidate: Measured, reference: Measured, of: Denominator) -> list[float]:
    mine, other = _by_block(candidate, of), _by_block(reference, of)
    better = (mine, other) if of.higher_is_better else (other, mine)
    return assumption.block_log_ratios(*better)


def _by_block(measured: Measured, of: Denominator) -> list[tuple[int, float]]:
    if of.clock == "span":
        windows = windows_of(measured.turns).items()
        numbers = ((block, sample.window_value(turns, of)) for block, turns in windows)
        return [(block, number) for block, number in numbers if number is not None]
    drafts = measured.arm.declared.draft_tokens
    values = ((turn.block, sample.value(turn, of, drafts)) for turn in measured.turns)
    return [(block, value) for block, value in values if block is not None and value is not None]


def replicates(measured: Measured, of: Denominator) -> int:
    """How many numbers there are if none is missing."""
    return len(windows_of(measured.turns)) if of.clock == "span" else len(measured.turns)
