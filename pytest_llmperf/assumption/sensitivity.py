"""How small a change a gate can see: the minimum detectable effect of each design.

How much to measure is in ``sizing``; where the variances come from is in ``components``. Every
effect is a relative slow-down that becomes the word in question with power 90 %.
"""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

from pytest_llmperf.assumption.arrays import Numbers, numpy, special
from pytest_llmperf.assumption.comparison import ALPHA, BETA, POWER, scipy_stats
from pytest_llmperf.assumption.confirm import CONFIRM_SHARE, TOLERANCE
from pytest_llmperf.assumption.looks import Design, look_table
from pytest_llmperf.assumption.screen import ALPHA_SCREEN, BETA_SHARE, suspicion
from pytest_llmperf.assumption.student import noncentrality

GATES = 20
"""Gates of a session that a plan reckons with."""

_ROUNDS = 16
_LOWER_QUARTILE = 0.6745
_LEVELS = tuple(10 ** (-k / 4) for k in range(4, 25))


class Screening(NamedTuple):
    """What a gate's screen knows; ``error`` may be an array."""

    error: Numbers
    """Prediction error of a session's mean against history's, on the log scale."""
    sessions: int
    gates: int = GATES
    """Of the session, this one included; the others are reckoned unchanged and as noisy."""


def screen_detectable(screening: Screening, alpha_screen: float = ALPHA_SCREEN) -> Numbers:
    """Give the slow-down for which one session is suspected.

    The noncentrality at which Student's t with sessions - 1 degrees of freedom has the power,
    times the prediction error.
    """
    shift = noncentrality(screening.sessions - 1, alpha_screen)
    return numpy().expm1(shift * screening.error)


def screen_passes(screening: Screening, detect: float, beta: float = BETA) -> float:
    """Give the chance that the screen passes an unchanged gate, for one gate."""
    stats, df = scipy_stats(), screening.sessions - 1
    shift = math.log1p(detect) / screening.error
    return float(stats.nct.sf(stats.t.isf(beta * BETA_SHARE, df), df, shift))


def level_share(
    effect: Numbers, screening: Screening, detect: float, beta: float = BETA
) -> Numbers:
    """Give the share of alpha that a gate slower by ``effect`` can reckon with.

    Its own weight at the lower quartile of what its screen would see, over that and the expected
    weights of the other gates that the screen does not pass.
    """
    np, t = numpy(), special()
    df = screening.sessions - 1
    seen = np.log1p(effect) / screening.error - _LOWER_QUARTILE
    own = suspicion(t.stdtr(df, -seen))
    edge = np.log1p(detect) / screening.error - t.stdtrit(df, 1 - beta * BETA_SHARE)
    others = _expected_weight(np.maximum(t.stdtr(df, -edge), ALPHA_SCREEN))
    return own / (own + (screening.gates - 1) * others)


def confirm_detectable(
    gap_variance: Numbers,
    *,
    design: Design,
    level: Numbers,
    tolerance: float = TOLERANCE,
    detect: float,
    beta: float = BETA,
) -> Numbers:
    """Give the slow-down that a confirmation calls REGRESS, at a gate's own level.

    ``gap_variance`` is of one pair's log gap: twice a boot's variance, or a resident pair's. The
    power is the last look's alone, and ``beta`` is added to it for what is passed by mistake;
    changes under ``detect`` may rightly be passed, so that nothing smaller is stated.
    """
    np = numpy()
    last = design.looks[-1]
    power = round(POWER + beta * (BETA_SHARE + CONFIRM_SHARE), 6)
    shift = _shift(design, np.asarray(level), power)
    change = np.expm1(math.log1p(tolerance) + shift * np.sqrt(np.asarray(gap_variance) / last))
    return np.maximum(change, detect)


def gate_detectable(
    gap_variance: Numbers,
    screening: Screening | None,
    *,
    design: Design,
    tolerance: float = TOLERANCE,
    detect: float,
    alpha: float = ALPHA,
    beta: float = BETA,
) -> Numbers:
    """Give the slow-down that a gate calls REGRESS, screened and confirmed beside others.

    The share of alpha grows with the effect, so that the two are solved together, by bisection of
    its log. Without a screen (``None``) each of ``GATES`` has an equal share.
    """
    np = numpy()

    def seen(share: Numbers) -> Numbers:
        level = alpha * np.asarray(share)
        kept = {"tolerance": tolerance, "detect": detect, "beta": beta}
        return confirm_detectable(gap_variance, design=design, level=level, **kept)

    if screening is None:
        return seen(1 / GATES)
    low, high = np.log1p(seen(1.0)), np.log1p(seen(1 / GATES**2))
    for _ in range(_ROUNDS):
        middle = (low + high) / 2
        enough = seen(level_share(np.expm1(middle), screening, detect, beta)) <= np.expm1(middle)
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return seen(level_share(np.expm1(high), screening, detect, beta))


def _expected_weight(reach: Numbers) -> Numbers:
    """The mean over unchanged gates of the weight of those with a p-value up to ``reach``."""
    np = numpy()
    grid = np.geomspace(1e-6, 1, 200)
    weights = suspicion(grid)
    area = np.concatenate([[0.0], np.cumsum((weights[1:] + weights[:-1]) / 2 * np.diff(grid))])
    return np.interp(reach, grid, area)


def _shift(design: Design, level: Numbers, power: float) -> Numbers:
    """Standard errors that the last look takes, between tabulated levels."""
    np = numpy()
    levels, shifts = _shifts(design, power)
    return np.interp(np.log(level), levels, shifts)


@cache
def _shifts(design: Design, power: float) -> tuple[Numbers, Numbers]:
    np, table = numpy(), look_table(design, "rising")
    last, df = len(design.looks) - 1, design.df(design.looks[-1])
    levels = sorted(_LEVELS)
    shifts = [noncentrality(df, table.level(last, level), power) for level in levels]
    return np.log(levels), np.array(shifts)
