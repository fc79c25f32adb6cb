"""The other side of a gate against the past: its history, and its reference on fresh boots.

How gates are screened and confirmed is in ``suspects``; one measurement is in ``measure``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import msgspec

from pytest_llmperf import place, profile
from pytest_llmperf.assumption.looks import Arms
from pytest_llmperf.assumption.modes import modes
from pytest_llmperf.assumption.prediction import FEWEST, prediction_interval
from pytest_llmperf.assumption.tail import TAIL
from pytest_llmperf.bench import Side
from pytest_llmperf.denominator import Denominator
from pytest_llmperf.evidence import Measured
from pytest_llmperf.fitness import Band
from pytest_llmperf.history import History, Rules
from pytest_llmperf.history.derive import RATIO
from pytest_llmperf.history.healthy import machine_facts
from pytest_llmperf.history.past import ENTERED, PastSession
from pytest_llmperf.history.reader import WINDOW
from pytest_llmperf.identity import (
    denominator_id,
    differences,
    place_of,
    place_of_pair,
    ratio_id,
    subject_of,
)
from pytest_llmperf.plan import CANDIDATE, REFERENCE
from pytest_llmperf.run import Origin, Pair, Run
from pytest_llmperf.suspects import Past
from pytest_llmperf.units import counted, quantile_name
from pytest_llmperf.verdict import Word

if TYPE_CHECKING:
    from pytest_llmperf.lease import EngineLease
    from pytest_llmperf.session import LiveSession

HEALTHY = 0.999
"""The share of healthy sessions that a band of the machine's facts is to hold."""

FIRST_FRESH_ROUND = 1000
"""Rounds of confirmations are numbered from here, apart from those of the tests."""


def past_of(root: Path, run: Run, gate: str, p: float, session_id: str) -> Past:
    """Look up what a run is held against: sessions of its place and denominator."""
    measured = run.measured
    call = 0 if run.origin is None else run.origin.call
    here = place_of(measured)
    with History(root) as history:
        found = history.sessions(
            gate,
            here,
            denominator_id(run.denominator),
            call=call,
            series="candidate" if measured.arm.name == CANDIDATE else "reference",
            without=session_id,
        )
        if not found:
            return Past(missing=_why_none(root, here.unknown, history.nearest(gate, here)))
        newest = found[-1]
        now = [each for each in found if each.epoch == newest.epoch]
        apart = differences(subject_of(measured), newest.subject)
        return Past(
            sessions=tuple(each.slowness(quantile_name(p)) for each in now),
            tails=_tails(now),
            subject=tuple(str(each) for each in apart if not each.is_unknown),
        )


Bands = tuple[dict[str, Band], str | None]
"""By fact of the machine where healthy sessions lie; and why that is not known."""


def healthy_bands(root: Path) -> Bands:
    """Where this machine's canaries and clocks lay in its past sessions."""
    here = place.facts()
    unknown = [name for name, value in here.items() if value is None]
    if unknown:
        return {}, f"{', '.join(unknown)} of this place is unknown"
    past = machine_facts(root, here, newest=WINDOW)
    bands: dict[str, Band] = {}
    for fact in sorted({name for each in past for name in each}):
        values = [each[fact] for each in past if fact in each]
        interval = prediction_interval(values, HEALTHY)
        if interval is not None:
            low, high = interval
            bands[fact] = Band(sessions=len(values), typical=median(values), low=low, high=high)
    if bands:
        return bands, None
    return {}, f"{counted(len(past), 'healthy session')} of this place, {FEWEST} make a band"


def ratios_of(root: Path, pair: Pair, gate: str, session_id: str) -> tuple[tuple[float, ...], ...]:
    """Past sessions' log ratios of one comparison, by boot, since the last accepted change.

    Positive where the candidate is better, as the ratio itself.
    """
    if not root.is_dir():
        return ()
    mine, other = pair.candidate.measured, pair.reference.measured
    origin = pair.candidate.origin
    with History(root) as history:
        found = history.sessions(
            gate,
            place_of_pair(mine, other),
            ratio_id(mine.arm.denominator, other.arm.denominator, mine.measurement.factor),
            call=0 if origin is None else origin.call,
            series="ratio",
            without=session_id,
        )
    logs = tuple(each.logs(RATIO) for each in found if each.epoch == found[-1].epoch)
    return tuple(each for each in logs if each)


def _tails(sessions: Sequence[PastSession]) -> tuple[tuple[float, ...], ...]:
    """Boots' log p95s as durations: a rate's slow end is its low one, which is not kept."""
    if any(each.higher_is_better for each in sessions):
        return ()
    logs = tuple(each.slowness(quantile_name(TAIL)) for each in sessions)
    return logs if all(logs) else ()


def _why_none(root: Path, unknown: Sequence[str], apart: Sequence[object]) -> str:
    if unknown:
        return f"this place has no history: {', '.join(unknown)} is unknown"
    if apart:
        return f"the past is of another place: {'; '.join(map(str, apart))}"
    return f"no past session of this gate in {root}"


class Configuration(msgspec.Struct, frozen=True, kw_only=True):
    """The profile that fresh reference boots are made of, and where it comes from."""

    profile: profile.Profile
    source: str


def stored_configuration(root: Path, gate: str) -> Configuration | None:
    """Give the configuration of a gate's newest past session that counts and kept one.

    A session that was red and that nobody accepted is no reference.
    """
    with History(root) as history:
        counting = (
            each
            for each in history.everything(gate)
            if each.replicated and each.standing.state in ENTERED
        )
        for each in sorted(counting, key=lambda past: past.started, reverse=True):
            (session,) = history.evidence(each.session_id).sessions
            if session.configuration is not None:
                found = msgspec.convert(session.configuration, profile.Profile)
                return Configuration(profile=found, source=f"session {each.session_id}")
    return None


class FreshPairs:
    """Measures one gate again and again on fresh boots of candidate and reference."""

    def __init__(self, session: LiveSession, gate: str, run: Run, other: Configuration) -> None:
        if run.origin is None:
            raise TypeError("a run without an origin cannot be measured again")
        self._session = session
        self._gate = gate
        self._origin: Origin = run.origin
        self._denominator: Denominator = run.measured.arm.denominator
        self._other = other

    @property
    def arms(self) -> Arms:
        """``paired`` where both engines are up side by side, else ``pooled``."""
        return "paired" if self._session.profile.resident > 1 else "pooled"

    def __call__(self, pair: int) -> tuple[Measured, Measured]:
        """Boot both sides afresh, measure them, and hand back candidate and reference."""
        session = self._session
        session.begin_round(FIRST_FRESH_ROUND + pair)
        lease: EngineLease = self._origin.side.lease
        mine = session.lease(lease.name, **lease.recipe)
        other = session.lease_of(self._other.profile, lease.name, **lease.recipe)
        sides = [
            Side(name=CANDIDATE, lease=mine, denominator=self._denominator),
            Side(name=REFERENCE, lease=other, denominator=self._denominator),
        ]
        candidate, reference = session.fresh_pair(
            self._gate, self._origin, sides if pair % 2 == 0 else sides[::-1]
        )
        return candidate, reference


def record_in(root: Path, folder: Path, words: Mapping[str, Word | None]) -> tuple[str, ...]:
    """Let a session join the history; give what became of it, a line each.

    :raises EvidenceError: its evidence cannot be used, or it is there already.
    """
    rules = Rules(two_modes=_two_modes)
    with History(root) as history:
        return history.record_session(folder, words, rules=rules).lines


def _two_modes(logs: Sequence[float]) -> str | None:
    found = modes(logs)
    return str(found) if found.are_two else None
