"""One session held against stored ones: it may pass a gate or suspect it, and never fails it.

A suspect is judged on fresh boots, in ``confirm``. A session is one replicate here, since sessions
differ by more than their boots explain.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import msgspec

from pytest_llmperf.assumption.arrays import EQUAL, Numbers, numpy, special, t_tail
from pytest_llmperf.assumption.boots import Past, Session, history_of, session_of
from pytest_llmperf.assumption.borrow import GUARD, guard_p
from pytest_llmperf.assumption.comparison import BETA, logarithms
from pytest_llmperf.assumption.student import noncentrality
from pytest_llmperf.errors import UsageError
from pytest_llmperf.units import counted

ALPHA_SCREEN = 0.02
"""Default chance that an unchanged gate is suspected."""

BETA_SHARE = 0.5
"""The screen's share of beta."""

FEWEST_SESSIONS = 6
"""Stored sessions under which nothing is screened."""

_SURE = 1e-4
"""A smaller p-value of a screen weighs no more: normal tails are not known so far out."""

_STEEP = 0.75
"""How steeply a weight grows with suspicion: of 0 to 1.5 simulated, the best for one slower gate,
three, all of them, and one among two false suspects, taken together."""

ScreenWord = Literal["PASS", "SUSPECT", "UNRESOLVED"]


class Screened(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What stored sessions say about this one. ``None`` means that a thing cannot be said."""

    word: ScreenWord
    """SUSPECT and UNRESOLVED go to confirm; without one, UNRESOLVED is INCONCLUSIVE."""
    ratio: float | None
    """This session's typical value over history's; over 1 is worse, see ``screen``."""
    low: float | None
    """One-sided bound at ``alpha_screen``."""
    high: float | None
    """One-sided bound at the screen's share of beta."""
    p_suspect: float | None
    """Against "not worse than history"."""
    p_pass: float | None
    """Against "worse by ``detect`` or more"."""
    detect: float
    alpha_screen: float
    beta: float
    """The screen's share."""
    sessions: int
    boots: int
    df: int
    is_widened: bool
    """Whether this session's boots scatter more than history's, so that it counts for less."""
    weight: float
    """Its share of the family's level in ``confirm``, before normalising; see ``suspicion``.

    A gate that could not be screened weighs as one that is just suspected."""
    detectable: float | None
    """Relative slow-down that is suspected with power 90 %."""
    warnings: tuple[str, ...] = ()


def screen(
    now: Sequence[float],
    history: Sequence[Sequence[float]],
    *,
    detect: float,
    alpha_screen: float = ALPHA_SCREEN,
    beta: float = BETA,
    beta_share: float = BETA_SHARE,
) -> Screened:
    """Hold this session's boots against stored sessions' boots.

    Each is a sequence of per-boot logs of which more is worse: hand in the negative log of a
    throughput or of a ratio that should be large. A session known by its mean alone has one boot.

    :raises InvalidMeasurement: a session without boots, or a value that is no logarithm.
    :raises UsageError: ``detect`` is not positive, or a level not between 0 and 0.5.
    """
    _check(detect, alpha_screen, beta * beta_share)
    session, past = session_of(logarithms(now)), history_of(history) if history else None
    if past is None or past.sessions < FEWEST_SESSIONS:
        return _unscreened(session, past, detect=detect, levels=(alpha_screen, beta * beta_share))
    gap, se = screen_gap(session, past)
    p_suspect, p_pass = screen_tests(gap, se, past.sessions - 1, detect)
    suspect, passes = screen_words(p_suspect, p_pass, alpha_screen, beta * beta_share)
    df = past.sessions - 1
    return Screened(
        word="SUSPECT" if suspect else "PASS" if passes else "UNRESOLVED",
        ratio=math.exp(gap),
        low=math.exp(gap - special().stdtrit(df, 1 - alpha_screen) * se),
        high=math.exp(gap + special().stdtrit(df, 1 - beta * beta_share) * se),
        p_suspect=float(p_suspect),
        p_pass=float(p_pass),
        detect=detect,
        alpha_screen=alpha_screen,
        beta=beta * beta_share,
        sessions=past.sessions,
        boots=session.boots,
        df=df,
        is_widened=bool(widening(session, past) > 0),
        weight=float(suspicion(p_suspect)),
        detectable=math.expm1(noncentrality(df, alpha_screen) * float(se)) if se > EQUAL else None,
        warnings=() if se > EQUAL else ("all stored sessions are equal, so no noise was seen",),
    )


def screen_gap(now: Session, past: Past) -> tuple[Numbers, Numbers]:
    """Give the log gap to history's mean, and its standard error (a prediction error).

    The variance of a session's mean is history's between sessions; see ``widening``.
    """
    np = numpy()
    variance = past.variance * (1 + 1 / past.sessions) + widening(now, past)
    return now.mean - past.mean, np.sqrt(variance)


def widening(now: Session, past: Past) -> Numbers:
    """Give what this session's mean varies by more than a stored one's.

    Because it has fewer boots, or because its boots scatter more: then (the guard's F test) its
    own spread counts, not history's.
    """
    np = numpy()
    own = now.squares / np.maximum(now.df, 1)
    one_boot = np.where(guard_p(now, past) < GUARD, np.maximum(own, past.within), past.within)
    return np.maximum(one_boot / now.boots - past.within / past.boots, 0.0)


def screen_tests(gap: Numbers, se: Numbers, df: Numbers, detect: float) -> tuple[Numbers, Numbers]:
    """Give the p-values against "not worse" and against "worse by ``detect`` or more"."""
    return t_tail(gap, se, df), t_tail(math.log1p(detect) - gap, se, df)


def screen_words(
    p_suspect: Numbers, p_pass: Numbers, alpha_screen: float, beta: float
) -> tuple[Numbers, Numbers]:
    """Say which are SUSPECT and which PASS; suspicion goes first, the rest is UNRESOLVED."""
    suspect = p_suspect <= alpha_screen
    return suspect, ~suspect & (p_pass <= beta)


def suspicion(p_suspect: Numbers) -> Numbers:
    """Weigh a suspect by how strongly history speaks against it.

    A weight may depend on the screen, whose data the confirmation does not use, and on nothing
    else; so the family's level holds whatever the screen's assumptions are worth.
    """
    np = numpy()
    return np.maximum(p_suspect, _SURE) ** -_STEEP


def _unscreened(
    session: Session, past: Past | None, *, detect: float, levels: tuple[float, float]
) -> Screened:
    stored = 0 if past is None else past.sessions
    few = f"history has {counted(stored, 'session')}, and screening takes {FEWEST_SESSIONS}"
    return Screened(
        word="UNRESOLVED",
        ratio=None if past is None else math.exp(session.mean - past.mean),
        low=None,
        high=None,
        p_suspect=None,
        p_pass=None,
        detect=detect,
        alpha_screen=levels[0],
        beta=levels[1],
        sessions=stored,
        boots=session.boots,
        df=max(stored - 1, 0),
        is_widened=False,
        weight=float(suspicion(ALPHA_SCREEN)),
        detectable=None,
        warnings=(few,),
    )


def _check(detect: float, *levels: float) -> None:
    if not 0 < detect < math.inf:
        raise UsageError(
            f"detect is {detect!r}.",
            "It is the relative slow-down that a PASS must exclude: more than 0.",
            "Give 0.10 for ten percent.",
        )
    for level in levels:
        if not 0 < level < 0.5:  # noqa: PLR2004 - beyond it both tests could reject
            raise UsageError(
                f"a level of the screen is {level!r}.",
                "A level is the chance of a wrong word: more than 0 and less than 0.5.",
                "Give 0.02 for two percent.",
            )
