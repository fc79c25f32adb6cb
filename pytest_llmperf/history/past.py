"""What a history gives out: past sessions with their boots, anchors, and the data for creep.

How sessions are found is in ``store``; tests on their numbers are in ``assumption``.
"""

from __future__ import annotations

from statistics import fmean
from typing import Literal

import msgspec

from pytest_llmperf.history.decisions import Decision
from pytest_llmperf.history.derive import Boot, SeriesName, all_logs
from pytest_llmperf.history.layout import Judged
from pytest_llmperf.identity import Half

State = Literal["recorded", "accepted", "excluded"]

ENTERED: tuple[State, ...] = ("recorded", "accepted")
"""The states in which a session's numbers count."""

NOT_ACCEPTED = "REGRESS, not accepted"
UNREPLICATED = "one number from another tool, no boots behind it"


class Standing(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whether a gate's session counts, and why."""

    state: State
    reason: str | None = None
    who: str | None = None
    when: str | None = None


class PastSession(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One gate's numbers in one past session, a boot each."""

    session_id: str
    started_at: str
    started: float
    """Unix seconds."""
    path: str
    """The file they come from, below the history's root."""
    profile: str | None = None
    gate: str
    call: int = 0
    series: SeriesName = "candidate"
    denominator_id: str
    place: Half
    subject: Half
    boots: tuple[Boot, ...]
    replicated: bool = True
    """False: one number from another tool; boots were not repeated, or nobody knows."""
    standing: Standing
    epoch: int = 0
    """How many accepted changes of this gate came up to this session: numbers of an earlier epoch
    tell how much sessions scatter, and no longer where they lie."""

    def logs(self, statistic: str) -> tuple[float, ...]:
        """Each boot's natural log of a statistic; empty where one of them lacks it."""
        return all_logs(self.boots, statistic)

    @property
    def higher_is_better(self) -> bool:
        """Whether the number grows when things get better: a rate, or a ratio of arms."""
        return self.series == "ratio" or self.place.facts.get("unit") == "output_token"

    def slowness(self, statistic: str) -> tuple[float, ...]:
        """``logs`` with the sign that makes more worse, as ``assumption`` wants them."""
        sign = -1 if self.higher_is_better else 1
        return tuple(sign * each for each in self.logs(statistic))

    def mean(self, statistic: str) -> float | None:
        """The session's mean log over boots; ``None`` where a boot lacks the statistic."""
        logs = self.logs(statistic)
        return fmean(logs) if logs else None

    @property
    def label(self) -> str | None:
        """What a reader must know wherever this number stands."""
        return None if self.replicated else UNREPLICATED


class Anchor(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Sessions that were pinned, which later ones are held against."""

    gate: str
    label: str
    reason: str
    who: str
    when: str
    session_ids: tuple[str, ...]
    sessions: tuple[PastSession, ...] = ()
    """Those of the place and denominator that were asked for, oldest first."""


def standing(
    judged: Judged | None,
    problem: str | None,
    accepted: Decision | None,
    *,
    was_judged: bool = True,
    replicated: bool = True,
) -> Standing:
    """What a session counts for a gate.

    :param judged: what stands beside the evidence about this gate, if anything.
    :param problem: why the evidence is no measurement.
    :param accepted: the decision that accepts this session's regression, if there is one.
    :param was_judged: whether anything stands beside the evidence at all.
    """
    out = f"INVALID: {problem}" if problem is not None else None
    if out is None and not replicated:
        return Standing(state="recorded", reason=UNREPLICATED)
    out = out or _kept_out(judged, was_judged=was_judged)
    if out is not None:
        return Standing(state="excluded", reason=out)
    if judged is None or judged.word != "REGRESS":
        return Standing(state="recorded")
    if accepted is None:
        return Standing(state="excluded", reason=NOT_ACCEPTED)
    return Standing(state="accepted", reason=accepted.reason, who=accepted.who, when=accepted.when)


def _kept_out(judged: Judged | None, *, was_judged: bool) -> str | None:
    """Why a session never counts, whatever is accepted; ``None`` if it may."""
    if judged is None:
        return "its verdicts do not name this gate" if was_judged else "it was never recorded"
    return "INVALID" if judged.word == "INVALID" else judged.refused
