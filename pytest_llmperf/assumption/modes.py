"""Whether boots fall into two modes, one slower than the other.

A baseline recorded from such boots stands for neither, so that it is not recorded. Boots that are
merely scattered are ``components``' affair.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

import msgspec

from pytest_llmperf.assumption.arrays import EQUAL, Numbers, numpy
from pytest_llmperf.assumption.comparison import logarithms

ALPHA_MODES = 0.001
"""Level: boots of one mode are called two once in a thousand recordings."""

FEWEST = 6
"""Boots under which two modes cannot be told from scatter."""

_SMALLEST = 2
_SIMULATED = 19_999
_SEED = 41


class Modes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The best split of boots into faster and slower. ``None``: too few boots to say."""

    are_two: bool | None
    p: float | None
    """The chance of as clean a split among boots of one normal mode; at least 1 in 20,000."""
    ratio: float | None
    """Typical slower boot over typical faster boot."""
    faster: int
    slower: int


def modes(boots: Sequence[float], *, alpha: float = ALPHA_MODES) -> Modes:
    """Split per-boot logs in two, and say whether one normal mode would split as cleanly.

    Statistic: the share of the sum of squares that the best split explains, with at least two
    boots a side (a single bad boot is no mode). Its distribution under one normal mode is
    simulated with a fixed seed; it depends on the number of boots alone.

    :raises InvalidMeasurement: there are no boots, or a value is no logarithm.
    """
    logs = sorted(logarithms(boots))
    n = len(logs)
    if n < FEWEST or logs[-1] - logs[0] <= EQUAL:
        none = n < FEWEST
        return Modes(are_two=None if none else False, p=None, ratio=None, faster=n, slower=0)
    shares = _explained(numpy().array([logs]))[0]
    cut = int(shares.argmax()) + _SMALLEST
    p = float((1 + (_one_mode(n) >= shares.max() - EQUAL).sum()) / (1 + _SIMULATED))
    typical = math.fsum(logs[:cut]) / cut, math.fsum(logs[cut:]) / (n - cut)
    ratio = math.exp(typical[1] - typical[0])
    return Modes(are_two=p <= alpha, p=p, ratio=ratio, faster=cut, slower=n - cut)


def _explained(ordered: Numbers) -> Numbers:
    """For each cut of sorted rows, the share of the squares between the two sides."""
    np = numpy()
    centred = ordered - ordered.mean(axis=-1, keepdims=True)
    n = centred.shape[-1]
    left = np.cumsum(centred, axis=-1)[:, _SMALLEST - 1 : n - _SMALLEST]
    size = np.arange(_SMALLEST, n - _SMALLEST + 1)
    return left**2 * n / (size * (n - size)) / (centred**2).sum(axis=-1, keepdims=True)


@cache
def _one_mode(n: int) -> Numbers:
    """The statistic of many samples of one normal mode."""
    np = numpy()
    rng = np.random.default_rng(_SEED)
    drawn = np.sort(rng.standard_normal((_SIMULATED, n)), axis=-1)
    return _explained(drawn).max(axis=-1)
