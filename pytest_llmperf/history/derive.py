"""From one session's evidence to what history keeps of it: a few numbers a boot, with identity.

Everything here can be computed again from evidence, and is when ``DERIVATION`` changes. What
becomes of a session by its verdicts is in ``past``.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from statistics import fmean
from typing import Literal

import msgspec

from pytest_llmperf import assumption, identity, proof, record
from pytest_llmperf.attribution import Terms, terms
from pytest_llmperf.denominator import CLOCKS
from pytest_llmperf.errors import EvidenceError, InvalidMeasurement
from pytest_llmperf.evidence import Evidence, Measured
from pytest_llmperf.identity import Half
from pytest_llmperf.run import Pair, Run, replicates
from pytest_llmperf.units import quantile_name

SeriesName = Literal["candidate", "reference", "ratio"]

QUANTILES = (0.50, 0.90, 0.95, 0.99)
"""The quantiles that are kept of each boot, where it has turns enough to estimate them."""

MEAN = "mean"
"""The statistic that is the mean log over turns."""

RATIO = "ratio"
"""The statistic that is the mean log ratio over blocks, positive where the candidate is better."""

_VERSION = 1
_RULES = [rule.__qualname__ for rule in (*proof.RULES, *proof.PAIR_RULES)]

DERIVATION = "-".join(
    (
        str(_VERSION),
        str(record.INSTRUMENT),
        hashlib.sha256(repr((CLOCKS, QUANTILES, _RULES)).encode()).hexdigest()[:8],
    )
)
"""What the kept numbers were computed by: our version, the instrument's, formulas and proofs."""


class Boot(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one boot came to."""

    boot_id: str
    round: int = 0
    turns: int
    """Turns with a value; windows where all streams are counted together, blocks in a ratio."""
    undefined: int = 0
    """Turns without one."""
    logs: dict[str, float]
    """Natural logs by statistic: ``p50``, ``p95``, ``mean``..., or ``ratio``; unrounded."""
    terms: Terms = Terms()


class Series(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One arm of a gate in one session, or the ratio of its two arms."""

    gate: str
    call: int = 0
    name: SeriesName = "candidate"
    denominator_id: str
    place: Half
    subject: Half
    boots: tuple[Boot, ...]
    problem: str | None = None
    """Why this is no measurement of what it declares; such a session never enters history."""
    replicated: bool = True
    """False: one number with no boots behind it, taken from another tool."""


class Derived(msgspec.Struct, frozen=True, kw_only=True):
    """What one file of evidence came to."""

    session_id: str
    started_at: str
    started: float
    """Unix seconds."""
    profile: str | None = None
    mode: str | None = None
    series: tuple[Series, ...] = ()


def derive(evidence: Evidence) -> Derived:
    """Compute what is kept of one session.

    :raises EvidenceError: it is of several sessions, or does not say when it was.
    """
    if len(evidence.sessions) != 1:
        raise EvidenceError(
            f"This is evidence of {len(evidence.sessions)} sessions.",
            f"There is {evidence.contents()}.",
            "Give one session's folder.",
        )
    (session,) = evidence.sessions
    gates = [_Gate(gate, call, arms) for (gate, call), arms in sorted(_by_gate(evidence).items())]
    return Derived(
        session_id=session.session_id,
        started_at=session.started_at,
        started=unix_seconds(session.started_at),
        profile=session.profile,
        mode=session.mode,
        series=tuple(series for gate in gates for series in gate.series()),
    )


def unix_seconds(text: str) -> float:
    """A time in ISO 8601; one that names no zone is taken as UTC.

    :raises EvidenceError: it is no time.
    """
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise EvidenceError(
            f"{text!r} is no time.", f"{error}.", "A session says when it began, in ISO 8601."
        ) from error
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def _by_gate(evidence: Evidence) -> dict[tuple[str, int], dict[int, dict[str, Measured]]]:
    """Arms by name, for each round of each measurement of a gate; the last one of a name holds."""
    found: dict[tuple[str, int], dict[int, dict[str, Measured]]] = {}
    for gate in evidence.gates:
        for start in evidence.measurements(gate):
            rounds = found.setdefault((gate, start.call), {})
            arms = rounds.setdefault(start.round, {})
            arms |= {each.arm.name: each for each in evidence.measured(start.measurement_id)}
    return found


class _Gate:
    """One measurement of one gate over all rounds of a session."""

    def __init__(self, gate: str, call: int, rounds: dict[int, dict[str, Measured]]) -> None:
        self._gate = gate
        self._call = call
        self._rounds = [rounds[number] for number in sorted(rounds)]
        self._pairs = [
            (arms["candidate"], arms["reference"])
            for arms in self._rounds
            if {"candidate", "reference"} <= arms.keys()
        ]

    def series(self) -> list[Series]:
        found = [self._arm(name) for name in self._names()]
        if self._pairs:
            found.append(self._ratio())
        problem = next((each.problem for each in found if each.problem is not None), None)
        return [msgspec.structs.replace(each, problem=problem) for each in found]

    def _names(self) -> list[SeriesName]:
        names: list[SeriesName] = ["candidate", "reference"]
        return [name for name in names if self._boots(name)]

    def _boots(self, name: str) -> list[Measured]:
        return [arms[name] for arms in self._rounds if name in arms]

    def _arm(self, name: SeriesName) -> Series:
        boots = self._boots(name)
        place, subject = identity.place_of(boots[0]), identity.subject_of(boots[0])
        return Series(
            gate=self._gate,
            call=self._call,
            name=name,
            denominator_id=identity.denominator_id(boots[0].arm.denominator),
            place=place,
            subject=subject,
            boots=tuple(boot for each in boots if (boot := _boot(each)) is not None),
            problem=_first_of(
                *(_invalid(each) for each in boots),
                *(_apart(place, identity.place_of(each)) for each in boots),
                *(_apart(subject, identity.subject_of(each)) for each in boots),
            ),
        )

    def _ratio(self) -> Series:
        candidate, reference = self._pairs[0]
        boots: list[Boot] = []
        problems: list[str | None] = []
        for pair in self._pairs:
            problems += [
                each.reason for each in proof.pair_contradictions(*pair, self._factor(pair[0]))
            ]
            try:
                boots.append(_pair_boot(*pair))
            except InvalidMeasurement as error:
                problems.append(f"no pair of arms to compare: {error.what}")
        return Series(
            gate=self._gate,
            call=self._call,
            name="ratio",
            denominator_id=identity.ratio_id(
                candidate.arm.denominator, reference.arm.denominator, self._factor(candidate)
            ),
            place=identity.place_of_pair(candidate, reference),
            subject=identity.subject_of_pair(candidate, reference),
            boots=tuple(boots),
            problem=_first_of(*problems),
        )

    @staticmethod
    def _factor(measured: Measured) -> str | None:
        return measured.measurement.factor


def _boot(measured: Measured) -> Boot | None:
    """One arm on one boot; ``None`` where no turn has a value."""
    values = Run([measured]).values[0]
    if not values:
        return None
    return Boot(
        boot_id=measured.arm.boot_id,
        round=measured.measurement.round,
        turns=len(values),
        undefined=replicates(measured, measured.arm.denominator) - len(values),
        logs=_logs(values),
        terms=terms(measured),
    )


def _logs(values: Sequence[float]) -> dict[str, float]:
    logs = {
        quantile_name(p): math.log(assumption.quantile(values, p))
        for p in QUANTILES
        if len(values) >= _fewest(p)
    }
    return logs | {MEAN: fmean(map(math.log, values))}


def _fewest(p: float) -> int:
    """Values needed for the median-unbiased estimate of a quantile to lie inside the sample.

    Formula: n p + (p + 1) / 3 between 1 and n (Hyndman and Fan 1996, type 8).
    """
    tail = min(p, 1 - p)
    return math.ceil((2 - tail) / (3 * tail) - 1e-9)


def _pair_boot(candidate: Measured, reference: Measured) -> Boot:
    of = candidate.arm.denominator
    pair = Pair(
        Run([candidate]), Run([reference]), of=of, factor=candidate.measurement.factor or ""
    )
    (logs,) = pair.log_ratios()
    return Boot(
        boot_id=f"{candidate.arm.boot_id} / {reference.arm.boot_id}",
        round=candidate.measurement.round,
        turns=len(logs),
        logs={RATIO: fmean(logs)},
    )


def _invalid(measured: Measured) -> str | None:
    found = proof.contradictions(measured)
    if found:
        return found[0].reason
    return None if Run([measured]).values[0] else "no turn has a value under its denominator"


def _apart(first: Half, other: Half) -> str | None:
    known = [str(each) for each in identity.differences(first, other) if not each.is_unknown]
    return f"its boots differ in {first.side}: {'; '.join(known)}" if known else None


def _first_of(*problems: str | None) -> str | None:
    return next((each for each in problems if each is not None), None)


def central(series: SeriesName) -> str:
    """The statistic that says where a boot lies."""
    return RATIO if series == "ratio" else MEAN


def all_logs(boots: Iterable[Boot], statistic: str) -> tuple[float, ...]:
    """Each boot's log of a statistic; empty where one of them lacks it."""
    found = [each.logs.get(statistic) for each in boots]
    known = tuple(each for each in found if each is not None)
    return known if len(known) == len(found) else ()
