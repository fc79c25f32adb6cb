"""The spread of boots borrowed from history, and the guard that refuses it.

A session's three boots know their own spread badly; ten sessions' boots know it well, if boots
scatter today as they did. Never for a confirmation (``confirm``): with boots 1.5 times as scattered
as history's the guard sees one session in four, and a level of 1 % becomes 4 %.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from pytest_llmperf.assumption.arrays import Numbers, numpy, special
from pytest_llmperf.assumption.boots import Past, Session, history_of, session_of
from pytest_llmperf.assumption.comparison import (
    ALPHA,
    BETA,
    Comparison,
    Relation,
    claimed,
    logarithms,
)
from pytest_llmperf.assumption.student import t_comparison

GUARD = 0.05
"""History is not borrowed from when boots this much more scattered have a smaller chance."""


class Spread(NamedTuple):
    """The variance of one boot; each field may be an array."""

    variance: Numbers
    df: Numbers
    is_borrowed: Numbers
    guard_p: Numbers
    """The chance of boots as scattered as these if they scatter as history's do (F test)."""


def boot_variance(now: Session, past: Past) -> Spread:
    """Pool the variance of this session's boots with history's, unless the guard forbids it."""
    np = numpy()
    own = now.squares / np.maximum(now.df, 1)
    guard = guard_p(now, past)
    df = now.df + past.within_df
    pooled = (now.squares + past.within * past.within_df) / np.maximum(df, 1)
    is_borrowed = (guard >= GUARD) & (past.within_df > 0)
    return Spread(
        np.where(is_borrowed, pooled, own), np.where(is_borrowed, df, now.df), is_borrowed, guard
    )


def guard_p(now: Session, past: Past) -> Numbers:
    """Give the one-sided F test's p-value against "boots scatter as history's do, or less"."""
    np = numpy()
    testable = (past.within > 0) & (now.df > 0) & (past.within_df > 0)
    scale = np.where(testable, past.within * np.maximum(now.df, 1), 1.0)
    ratio = np.where(testable, now.squares / scale, 0.0)
    return np.where(
        testable, special().fdtrc(np.maximum(now.df, 1), max(past.within_df, 1), ratio), 1.0
    )


def ratio_against_borrowing(
    now: Sequence[float],
    history: Sequence[Sequence[float]],
    *,
    floor: float,
    alpha: float = ALPHA,
    beta: float = BETA,
    relation: Relation = "at least",
) -> Comparison:
    """Hold the ratio of this session's boots against a floor, by history's spread of boots.

    ``now`` holds one log ratio a boot, ``history`` the same of stored sessions. Their means do not
    enter. Where the guard refuses history, the session's own spread is used and a warning says so.

    :raises InvalidMeasurement: no boots, an empty session, or a log that is not finite.
    :raises UsageError: a level or the floor is out of its range.
    """
    claim, logs = claimed(relation, floor, alpha, beta), logarithms(now)
    session = session_of(logs)
    spread = boot_variance(session, history_of(history))
    sd, df, n = math.sqrt(float(spread.variance)), int(spread.df), len(logs)
    return t_comparison(
        claim,
        centre=float(session.mean),
        se=sd / math.sqrt(n),
        df=df,
        plan=lambda more: (sd / math.sqrt(more), df - n + more),
        replicate="boot",
        n=n,
        assumption=_assumption(bool(spread.is_borrowed)),
    )


def _assumption(is_borrowed: bool) -> str:
    if is_borrowed:
        return "boots are independent, the logs of their ratios normal and spread as in history"
    return "boots are independent, and the logs of their ratios normal (more spread than history)"
