"""Many small steps that no single comparison sees: the latest sessions against a pinned anchor.

Which sessions the anchor holds and who pinned it, with which reason, is history's affair. One
session against the rolling history is in ``screen``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from pytest_llmperf.assumption.arrays import EQUAL, Numbers, numpy, special, squares, t_tail
from pytest_llmperf.assumption.comparison import BETA, logarithms

ALPHA_CREEP = 0.001
"""Default level. The test is repeated at every session, so that it must be small."""

LATEST = 5
"""Sessions whose mean is held against the anchor."""

_FEWEST = 2


class Creep(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How far the latest sessions are from the anchor. ``None``: it cannot be said."""

    is_creeping: bool | None
    ratio: float | None
    """Of typical values, latest over anchor; over 1 is worse."""
    low: float | None
    """One-sided bound at ``alpha``."""
    high: float | None
    """One-sided bound at ``beta``."""
    p: float | None
    """One-sided, against "no more than ``allowed``"."""
    p_within: float | None
    """One-sided, against "more than ``allowed``"."""
    allowed: float
    alpha: float
    beta: float
    latest: int
    anchor: int


def creep(
    sessions: Sequence[float],
    anchor: Sequence[float],
    *,
    allowed: float = 0.0,
    alpha: float = ALPHA_CREEP,
    beta: float = BETA,
    latest: int = LATEST,
) -> Creep:
    """Hold the mean of the latest sessions against the anchor's, by Student's two-sample t.

    Both are logs of session means of which more is worse, ``sessions`` in their order. ``allowed``
    is a relative change that is no creep (0.05: five percent since the release). With fewer than
    ``latest`` sessions, or two in the anchor, nothing is tested.

    :raises InvalidMeasurement: a value is no logarithm.
    """
    known = {"allowed": allowed, "alpha": alpha, "beta": beta, "anchor": len(anchor)}
    recent = list(sessions[-latest:])
    if len(recent) < latest or len(anchor) < _FEWEST:
        nothing = dict.fromkeys(("is_creeping", "ratio", "low", "high", "p", "p_within"))
        return msgspec.convert({**known, **nothing, "latest": len(recent)}, Creep)
    gap, se, df = creep_gap(logarithms(recent), logarithms(anchor))
    p = float(t_tail(gap - math.log1p(allowed), se, df))
    return Creep(
        is_creeping=p <= alpha if se > EQUAL else None,
        ratio=math.exp(gap),
        low=math.exp(gap - float(special().stdtrit(df, 1 - alpha)) * float(se)),
        high=math.exp(gap + float(special().stdtrit(df, 1 - beta)) * float(se)),
        p=p,
        p_within=float(t_tail(math.log1p(allowed) - gap, se, df)),
        allowed=allowed,
        alpha=alpha,
        beta=beta,
        latest=len(recent),
        anchor=len(anchor),
    )


def creep_gap(recent: Numbers, anchor: Numbers) -> tuple[Numbers, Numbers, int]:
    """Give the gap of two means over the last axis, its standard error, and the df."""
    np = numpy()
    recent, anchor = np.asarray(recent), np.asarray(anchor)
    n, m = recent.shape[-1], anchor.shape[-1]
    variance = (squares(recent) + squares(anchor)) / (n + m - 2)
    return (
        recent.mean(axis=-1) - anchor.mean(axis=-1),
        np.sqrt(variance * (1 / n + 1 / m)),
        n + m - 2,
    )
