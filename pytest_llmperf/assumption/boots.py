"""From one boot's turns to the one number, on the log scale, that stands for the boot.

And from a session's boots, or a history of sessions, to the sums that ``screen`` and
``components`` need. What a turn's value measures is in ``sample``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from pytest_llmperf.assumption.arrays import Numbers, numpy, squares
from pytest_llmperf.assumption.comparison import fraction, logarithms, some
from pytest_llmperf.assumption.ranks import quantile


class Session(NamedTuple):
    """One session's boots in sums; each field may be an array."""

    mean: Numbers
    """Mean of the boots' logs: the session's one value."""
    squares: Numbers
    """Sum of squares of the boots about it."""
    boots: Numbers

    @property
    def df(self) -> Numbers:
        """Degrees of freedom of ``squares``."""
        return self.boots - 1


class Past(NamedTuple):
    """A history of sessions in sums; each field may be an array."""

    mean: Numbers
    """Mean of the sessions' means: a session is one replicate, however many boots it has."""
    variance: Numbers
    """Variance of the sessions' means."""
    sessions: int
    within: Numbers
    """Variance of boots within their sessions, pooled; 0 where no session has two boots."""
    within_df: int
    boots: float
    """Boots a session: the harmonic mean, since means scatter by its inverse."""


def log_quantile(turns: Sequence[float], p: float) -> float:
    """Give the log of a boot's ``p`` quantile, median-unbiased (Hyndman and Fan's type 8).

    :raises InvalidMeasurement: there are no turns, or one is not positive and finite.
    """
    return math.log(quantile(turns, fraction(p)))


def session_of(boots: Numbers) -> Session:
    """Sum up a session; boots are on the last axis."""
    logs = numpy().asarray(boots, dtype=float)
    return Session(logs.mean(axis=-1), squares(logs), logs.shape[-1])


def past_of(sessions: Session) -> Past:
    """Sum up sessions; they are on the last axis of every field."""
    np = numpy()
    counts = np.broadcast_to(np.asarray(sessions.boots, dtype=float), sessions.mean.shape[-1:])
    h, within_df = sessions.mean.shape[-1], int((counts - 1).sum())
    return Past(
        mean=sessions.mean.mean(axis=-1),
        variance=squares(sessions.mean) / max(h - 1, 1),
        sessions=h,
        within=sessions.squares.sum(axis=-1) / max(within_df, 1),
        within_df=within_df,
        boots=float(h / (1 / counts).sum()),
    )


def history_of(sessions: Sequence[Sequence[float]]) -> Past:
    """Sum up stored sessions, each a sequence of its boots' logs, of any lengths.

    :raises InvalidMeasurement: there is no session, one is empty, or a value is no logarithm.
    """
    np = numpy()
    found = [session_of(logarithms(boots)) for boots in some(sessions, "session")]
    return past_of(Session(*(np.array(column) for column in zip(*found, strict=True))))
