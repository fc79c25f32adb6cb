"""A run that is over, judged again: its measurements out of recorded evidence, without an engine.

What a live run does in its place is in ``session``; reading the files is in ``evidence``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from pytest_llmperf import profile, record, suspects
from pytest_llmperf.bench import Asked, Lease, Side
from pytest_llmperf.creeping import creep_row
from pytest_llmperf.declaration import Declaration
from pytest_llmperf.errors import EvidenceError, UsageError
from pytest_llmperf.evidence import Evidence, Measured, read
from pytest_llmperf.gate import Gate
from pytest_llmperf.plan import CANDIDATE, REFERENCE, whole_blocks
from pytest_llmperf.proof import Contradiction
from pytest_llmperf.reference import past_of, ratios_of
from pytest_llmperf.report import Row
from pytest_llmperf.run import Levels, Pair, Run
from pytest_llmperf.settings import Settings
from pytest_llmperf.units import counted

_NAMED = 3
"""Other sessions that a note names."""


class RecordedLease:
    """An engine of a run that is over."""

    def __init__(self, name: str, *, speculation: bool) -> None:
        self.name = name
        self.speculation = speculation
        self.declared = record.Declared()

    @property
    def url(self) -> str:
        """There is none any more.

        :raises UsageError: always.
        """
        raise UsageError(
            f"The engine {self.name} has no address: recorded evidence is being judged.",
            "--llmperf-replay boots nothing.",
            "Run without --llmperf-replay to send requests of your own.",
        )


class RecordedSession:
    """Measurements out of recorded evidence; no engine, no client."""

    def __init__(self, settings: Settings) -> None:
        assert settings.replay is not None  # noqa: S101 - the caller chose this class by it
        self.profile = profile.load(settings.profile)
        self._settings = settings
        self._folder: Path = settings.replay
        self._evidence = read(settings.replay)
        self.distrust: list[Contradiction] = []
        """Why nothing of this evidence can be trusted: a check of the instrument failed."""
        self._judged: str | None = None
        self._others: tuple[str, ...] = ()
        """Other sessions that measured the same."""
        self._renamed: str | None = None

    @property
    def levels(self) -> Levels:
        """The error rates of this run's gates, by the profile."""
        return Levels.of(self.profile)

    @property
    def notes(self) -> tuple[str, ...]:
        """Which of several sessions is judged, and what a crash cut off."""
        renamed = () if self._renamed is None else (self._renamed,)
        others, cuts = self._others, (*renamed, *self._evidence.cuts)
        if not others:
            return cuts
        listed = ", ".join(others[-_NAMED:]) + (" and others" if len(others) > _NAMED else "")
        several = (
            f"Session {self._judged} is judged, the newest of {len(others) + 1} in {self._folder} "
            f"that measured this; also there: {listed}."
        )
        return (several, *cuts)

    def lease(self, name: str, *, speculation: bool, **overrides: Any) -> RecordedLease:  # noqa: ANN401, ARG002
        """A name, to tell the arms apart."""
        return RecordedLease(name, speculation=speculation)

    def boot(self, leases: Sequence[RecordedLease]) -> None:
        """Boot nothing."""

    def measured(self, asked: Asked) -> Sequence[Sequence[Measured]]:
        """Find what was recorded for this gate, in all rounds of the newest session that has it.

        :raises EvidenceError: nothing was, or under another denominator, factor or plan than now.
        """
        recorded = boots_of(self._evidence, asked.gate, asked.call)
        if not recorded:
            raise EvidenceError(
                f"There is no recorded measurement number {asked.call} of {asked.gate}.",
                f"{self._folder} holds {self._evidence.contents()}.",
                "Record this gate first, or point --llmperf-replay at the folder that has it.",
            )
        self._renamed = None
        found = [recorded[side.name] for side in asked.sides if side.name in recorded]
        for boots in found:
            self._judged = _checked_session(asked.gate, boots[-1]).session_id
        self._others = tuple(each for each in self._with(asked.gate) if each != self._judged)
        for boots, side in zip(found, asked.sides, strict=False):
            for boot in boots:
                self._renamed = self._renamed or _renamed(asked.gate, boot, side.lease)
                _check_denominator(asked.gate, boot, side)
                _check_factor(asked.gate, boot, asked.declaration)
                _check_turns(asked.gate, boot, asked.declaration)
        return [[_as_declared(boot, asked.declaration) for boot in boots] for boots in found]

    def _with(self, gate: str) -> dict[str, None]:
        """The sessions that measured a gate, in their order."""
        starts = (each.measurement_id for each in self._evidence.measurements(gate))
        arms = (arm for start in starts for arm in self._evidence.measured(start))
        return {arm.session.session_id: None for arm in arms if arm.session is not None}

    def against_the_past(self, run: Run, gate: Gate, p: float) -> Row:
        """Hold a recorded run against history, or against its recorded confirmation."""
        fresh = _confirmed(self._evidence, gate.node_id, run)
        if fresh:
            alpha = self.levels.alpha * gate.shares.past / self._suspects(run)
            return suspects.recorded_row(run, gate, p, fresh, levels=run.levels, alpha=alpha)
        past = past_of(self._settings.history, run, gate.node_id, p, _session_id(run))
        if len(run.boots) == 1:
            return suspects.quick_row(run, gate, p, past)
        row, weight = suspects.screened_row(run, gate, p, past)
        if weight is None:
            return row
        return suspects.unconfirmed(row, "recorded evidence cannot be measured again")

    def keep(self, gate: str, name: str, drawn: str) -> None:
        """Nothing: recorded evidence is not added to."""

    def with_memory(self, boot: Measured, *, probe: bool) -> Measured:  # noqa: ARG002 - as live
        """The boot: what was seen of its checkpoint and memory is recorded with it."""
        return boot

    def crept(self, run: Run, gate: Gate, p: float) -> Row | None:
        """How far a gate's sessions up to this one are from its anchor; ``None`` without one."""
        stated = self._settings.creep or self.profile.statistics.creep
        return creep_row(
            self._settings.history, run, gate, p, session_id=_session_id(run), allowed=stated
        )

    def past_ratios(self, pair: Pair, gate: Gate) -> tuple[tuple[float, ...], ...]:
        """Past sessions' log ratios of this comparison, by boot; none but of this very place."""
        own = _session_id(pair.candidate)
        return ratios_of(self._settings.history, pair, gate.node_id, own)

    def _suspects(self, run: Run) -> int:
        """How many gates went to fresh boots in a run's session; they shared its alpha."""
        confirmed = {
            start.gate
            for gate in self._evidence.gates
            for start in self._evidence.measurements(gate)
            if start.stage == "confirm"
            and self._evidence.measured(start.measurement_id)[0].session == run.measured.session
        }
        return max(len(confirmed), 1)

    def confirm(self) -> None:
        """Nothing: what was confirmed is recorded."""

    def begin_round(self, number: int) -> None:
        """Nothing: recorded rounds are judged together."""

    def close(self) -> None:
        """Close nothing."""


def boots_of(evidence: Evidence, node_id: str, call: int) -> dict[str, list[Measured]]:
    """By arm, the boots of one measurement of a gate in the newest session that has it."""
    measured = [
        arm
        for start in evidence.measurements(node_id)
        if start.call == call and start.stage == "judged"
        for arm in evidence.measured(start.measurement_id)
    ]
    by_arm: dict[str, list[Measured]] = {}
    for arm in measured:
        if arm.session == measured[-1].session:
            by_arm.setdefault(arm.arm.name, []).append(arm)
    return by_arm


def _confirmed(evidence: Evidence, node_id: str, run: Run) -> list[tuple[Measured, Measured]]:
    """The recorded fresh pairs of one gate and call, in the order of their rounds."""
    call = 0 if run.origin is None else run.origin.call
    arms: dict[int, dict[str, Measured]] = {}
    for start in evidence.measurements(node_id):
        if start.stage == "confirm" and start.call == call:
            for each in evidence.measured(start.measurement_id):
                if each.session == run.measured.session:
                    arms.setdefault(start.round, {})[each.arm.name] = each
    whole = (arms[number] for number in sorted(arms))
    return [(each[CANDIDATE], each[REFERENCE]) for each in whole if len(each) > 1]


def _session_id(run: Run) -> str:
    session = run.measured.session
    return "" if session is None else session.session_id


def _checked_session(node_id: str, boot: Measured) -> record.Session:
    """The session of a boot, refused where its numbers were stamped or counted otherwise.

    :raises EvidenceError: another instrument recorded it.
    """
    session = boot.session
    if session is not None and session.instrument == record.INSTRUMENT:
        return session
    stated = None if session is None else session.instrument
    raise EvidenceError(
        f"{node_id} was recorded by instrument {stated}; this is instrument {record.INSTRUMENT}.",
        "The two stamp or count otherwise, so that one number is not comparable with the other.",
        "Replay it with the version of pytest-llmperf that recorded it, or record again.",
    )


def _renamed(node_id: str, measured: Measured, lease: Lease) -> str | None:
    """A line on evidence of an engine of another name than the test asks for now.

    :raises EvidenceError: it was recorded with a drafter and is asked for without one.
    """
    if lease.name == measured.arm.engine:
        return None
    method = measured.arm.declared.speculation
    if method is not None and isinstance(lease, RecordedLease) and not lease.speculation:
        raise EvidenceError(
            f"{node_id} measures {lease.name} now; {measured.arm.engine} was recorded.",
            f"The one has no drafter, the other speculated ({method}).",
            "Restore the test, or record again.",
        )
    return f"The evidence is of the engine {measured.arm.engine}; the test now asks {lease.name}."


def _check_denominator(node_id: str, measured: Measured, side: Side) -> None:
    differences = side.denominator.differences(measured.arm.denominator)
    if differences:
        raise EvidenceError(
            f"{node_id} declares another denominator than its evidence was recorded under.",
            "; ".join(differences) + " (declared now against recorded).",
            "Compare numbers of one denominator only: restore the marker, or record again.",
        )


def _check_factor(node_id: str, measured: Measured, declaration: Declaration) -> None:
    factor = measured.measurement.factor
    if factor is not None and factor != declaration.factor:
        raise EvidenceError(
            f"{node_id} declares the factor {declaration.factor}; {factor} was recorded.",
            "What two arms differ in is what their ratio is a number of.",
            "Restore the marker, or record again.",
        )


def _check_turns(node_id: str, measured: Measured, declaration: Declaration) -> None:
    recorded, declared = measured.measurement.turns, whole_blocks(declaration)
    if recorded < declared:
        raise EvidenceError(
            f"{node_id} declares {declared} turns; {recorded} were planned when it was recorded.",
            "A verdict on fewer turns is not the one that is declared now.",
            "Restore the marker, or record again.",
        )
    windows = measured.measurement.windows
    if windows != declaration.windows:
        raise EvidenceError(
            f"{node_id} declares {_windows(declaration.windows)}; it was recorded in "
            f"{_windows(windows)}.",
            "A window of load is what is repeated on one boot, so its number decides the verdict.",
            "Restore the marker, or record again.",
        )


def _windows(number: int | None) -> str:
    return "turns one after another" if number is None else counted(number, "window")


def _as_declared(measured: Measured, declaration: Declaration) -> Measured:
    """What was recorded, to be proven by what is declared now."""
    start = msgspec.structs.replace(
        measured.measurement,
        min_acceptance=declaration.plan.min_acceptance,
        min_cached_share=declaration.min_cached_share,
    )
    return msgspec.structs.replace(measured, measurement=start)
