"""The instrument tried on itself: one workload against the same workload, in alternating blocks.

A difference here is the instrument's, so that it makes every verdict of the session INVALID; it
never makes a gate red. Whether values rise in their order is ``ranks.rising_trend_p``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from pytest_llmperf.assumption.arrays import EQUAL, Numbers, numpy, squares, t_tail
from pytest_llmperf.assumption.comparison import logarithms
from pytest_llmperf.errors import InvalidMeasurement

ALPHA_SELF = 0.001
"""Level, two-sided: a sound instrument fails once in a thousand checks."""

_FEWEST = 3


class SelfCheck(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Odd against even blocks of the same thing. ``None``: there are too few blocks to say."""

    is_sound: bool | None
    ratio: float | None
    p: float | None
    """Two-sided, against "no difference"."""
    pairs: int
    """Of neighbouring blocks."""
    alpha: float


def self_check(blocks: Sequence[float], *, alpha: float = ALPHA_SELF) -> SelfCheck:
    """Hold odd against even blocks of one arm, neighbour by neighbour, by a paired t test.

    ``blocks`` are logs of block means in their order; the last of an odd number has no neighbour
    and is left out. Fewer than three pairs say nothing.

    :raises InvalidMeasurement: a value is no logarithm.
    """
    logs = list(logarithms(blocks))
    return aa_check(logs[0:-1:2], logs[1::2], alpha=alpha)


def aa_check(
    one: Sequence[float], other: Sequence[float], *, alpha: float = ALPHA_SELF
) -> SelfCheck:
    """Hold two arms of the same thing against each other, pair by pair.

    :raises InvalidMeasurement: the arms differ in length.
    """
    if len(one) != len(other):
        raise InvalidMeasurement(
            f"The two arms of the self-check have {len(one)} and {len(other)} values.",
            "They are the same workload, measured in turn.",
            "Find out where one of them was not measured.",
        )
    pairs = len(one)
    if pairs < _FEWEST:
        return SelfCheck(is_sound=None, ratio=None, p=None, pairs=pairs, alpha=alpha)
    gaps = numpy().subtract(logarithms(one), logarithms(other))
    p, is_constant = float(self_check_p(gaps)), float(squares(gaps)) <= EQUAL**2 * pairs
    is_equal = is_constant and abs(float(gaps.mean())) <= EQUAL
    return SelfCheck(
        is_sound=is_equal or (not is_constant and p >= alpha),
        ratio=math.exp(float(gaps.mean())),
        p=p,
        pairs=pairs,
        alpha=alpha,
    )


def self_check_p(gaps: Numbers) -> Numbers:
    """Give the two-sided p-value of paired gaps, over the last axis."""
    np = numpy()
    gaps = np.asarray(gaps)
    n = gaps.shape[-1]
    se = np.sqrt(squares(gaps) / (n - 1) / n)
    return np.minimum(2 * t_tail(np.abs(gaps.mean(axis=-1)), se, n - 1), 1.0)
