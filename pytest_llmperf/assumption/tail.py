"""Whether the slow end of one arm is worse than the other's, which no typical value shows.

Used to take a PASS away and never to call a regression; the gates' own tests are in ``student``,
``ranks`` and ``confirm``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from pytest_llmperf.assumption.arrays import numpy, squares, t_tail
from pytest_llmperf.assumption.boots import log_quantile
from pytest_llmperf.assumption.comparison import BETA, positive, scipy_stats

TAIL = 0.95
"""The quantile that stands for the slow end."""

FEWEST_TURNS = 13
"""Turns of a boot under which ``TAIL`` cannot be estimated."""

_ALLOWED = (0.0, 0.02, 0.05)
"""Shares of the reference's turns that may be slower still: its own few stalls hide nothing."""

_FEWEST_BOOTS = 3


class Tail(msgspec.Struct, frozen=True, kw_only=True):
    """The slow ends of two arms. ``None``: there is too little to say."""

    is_worse: bool | None
    ratio: float
    """Of the p95s, candidate over reference; over 1 is slower."""
    p: float | None
    """One-sided, against "not worse"."""


def tail_of_turns(candidate: Sequence[float], reference: Sequence[float]) -> Tail:
    """Hold one boot's turns against another's: how many are slower than all but a few.

    An exceedance test (Rosenbaum, 1954): with no difference, the chance that so many of the
    slowest turns of both arms are the candidate's, beyond all of the reference's turns but none,
    a fiftieth or a twentieth of them (Bonferroni). Values are durations: more is worse.

    :raises InvalidMeasurement: an arm has no turns, or one is not positive and finite.
    """
    mine, other = sorted(positive(candidate)), sorted(positive(reference))
    ratio = math.exp(log_quantile(mine, TAIL) - log_quantile(other, TAIL))
    if min(len(mine), len(other)) < FEWEST_TURNS:
        return Tail(is_worse=None, ratio=ratio, p=None)
    tries = {math.ceil(share * len(other)) for share in _ALLOWED}
    p = min(1.0, len(tries) * min(_exceedance_p(mine, other, above) for above in tries))
    return Tail(is_worse=p <= BETA and ratio > 1, ratio=ratio, p=p)


def tail_of_boots(candidate: Sequence[float], reference: Sequence[float], *, more: float) -> Tail:
    """Hold the log p95s of boots against each other: pooled two-sample t against ``1 + more``."""
    np = numpy()
    mine, other = np.asarray(candidate), np.asarray(reference)
    n, m = len(mine), len(other)
    gap = float(mine.mean() - other.mean())
    if min(n, m) < _FEWEST_BOOTS:
        return Tail(is_worse=None, ratio=math.exp(gap), p=None)
    df = n + m - 2
    se = math.sqrt(float(squares(mine) + squares(other)) / df * (1 / n + 1 / m))
    p = float(t_tail(gap - math.log1p(more), se, df))
    return Tail(is_worse=p <= BETA, ratio=math.exp(gap), p=p)


def _exceedance_p(mine: Sequence[float], other: Sequence[float], above: int) -> float:
    """The chance of so many of mine beyond all but ``above`` of the other's turns."""
    limit = other[-1 - above]
    beyond = sum(value > limit for value in mine)
    seen = beyond + sum(value > limit for value in other)
    return float(scipy_stats().hypergeom.sf(beyond - 1, len(mine) + len(other), len(mine), seen))
