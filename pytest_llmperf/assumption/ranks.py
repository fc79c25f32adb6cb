"""Tests that rest on ranks alone: quantiles of one boot's turns, and a trend in their order.

Tests that assume normal logs, and everything over several boots, are in ``student``.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from functools import cache

from pytest_llmperf.assumption.arrays import special
from pytest_llmperf.assumption.comparison import (
    ALPHA,
    BETA,
    POWER,
    Claim,
    Comparison,
    Relation,
    claimed,
    finite,
    first_that_decides,
    fraction,
    positive,
    scipy_stats,
)
from pytest_llmperf.units import quantile_name

_ROUNDING = 1e-12
"""So that a quotient that is a whole number but for rounding is not rounded up."""


def quantile_against(
    values: Sequence[float],
    *,
    p: float,
    limit: float,
    alpha: float = ALPHA,
    beta: float = BETA,
    relation: Relation = "at most",
) -> Comparison:
    """Hold the ``p`` quantile of one boot's turns against a limit by order statistics.

    Tests and interval are distribution-free (Conover, Practical Nonparametric Statistics, 3.2).

    :raises InvalidMeasurement: no values, or one that is not a positive finite number.
    :raises UsageError: a level, the quantile or the limit is out of its range.
    """
    claim = claimed(relation, limit, alpha, beta)
    ordered, p = sorted(positive(values)), fraction(p)
    n, (over, under) = len(ordered), claim.sides(alpha, beta)
    under_it, upto = few(n, p, over), _many(n, p, under)
    regress, passes = claim.sides(*_quantile_tests(ordered, p, limit))
    return claim.comparison(
        estimate=quantile(ordered, p),
        low=ordered[under_it] if under_it >= 0 else None,
        high=ordered[upto - 1] if upto <= n else None,
        replicate="turn",
        n=n,
        p_regress=regress,
        p_pass=passes,
        detectable=_quantile_detectable(ordered, p, claim),
        needed=_turns_needed(ordered, p, claim),
        assumption="the turns of this boot are independent draws of one distribution of any shape",
        warnings=_too_few_turns(n, p, claim),
    )


def throughput_against(
    values: Sequence[float],
    *,
    floor: float,
    p: float = 0.5,
    alpha: float = ALPHA,
    beta: float = BETA,
) -> Comparison:
    """Hold the ``p`` quantile of one boot's rates against a floor, as ``quantile_against``."""
    return quantile_against(values, p=p, limit=floor, alpha=alpha, beta=beta, relation="at least")


def rising_trend_p(values: Sequence[float]) -> float | None:
    """Give Kendall's one-sided p-value against "the values do not rise in their order".

    ``None`` with fewer than three values or where all are equal.

    :raises InvalidMeasurement: a value is not finite.
    """
    series = finite(values) if values else []
    if len(series) < 3 or min(series) == max(series):  # noqa: PLR2004 - as the docstring says
        return None
    order = range(len(series))
    return float(scipy_stats().kendalltau(order, series, alternative="greater").pvalue)


def quantile(values: Sequence[float], p: float) -> float:
    """Estimate a quantile, median-unbiased (Hyndman and Fan's type 8).

    Between the two values around the place n p + p / 3 + 1 / 3, counted from 1.

    :raises InvalidMeasurement: there are no values, or one is not a positive finite number.
    """
    ordered = sorted(positive(values))
    at = p * len(ordered) + (p / 3 + 1 / 3)
    lower = math.floor(at)
    low, high = (ordered[min(max(each, 0), len(ordered) - 1)] for each in (lower - 1, lower))
    share = at % 1 if lower > 0 else 0.0
    return (1 - share) * low + share * high


def _quantile_tests(ordered: Sequence[float], p: float, limit: float) -> tuple[float, float]:
    """The p-values against "the quantile is not over" and "not under" the limit."""
    n, binom = len(ordered), scipy_stats().binom
    over = binom.cdf(bisect.bisect_right(ordered, limit), n, p)
    under = binom.sf(bisect.bisect_left(ordered, limit) - 1, n, p)
    return float(over), float(under)


@cache
def few(n: int, p: float, level: float) -> int:
    """Give the most values under a limit that still prove the quantile over it; -1 if none do."""
    binom = scipy_stats().binom
    most = int(binom.ppf(level, n, p))
    return most if binom.cdf(most, n, p) <= level else most - 1


@cache
def _many(n: int, p: float, level: float) -> int:
    """The fewest values under a limit that prove the quantile under it; n + 1 if none do."""
    return int(scipy_stats().binom.isf(level, n, p)) + 1


def _quantile_detectable(ordered: Sequence[float], p: float, claim: Claim) -> float | None:
    """How far the sample must scale from the boundary for the REGRESS test to see it.

    The test needs a share of turns on the wrong side (a Clopper-Pearson bound at the power);
    the change is the ratio of the ``p`` quantile to the quantile at that share.
    """
    share = _share_that_shows(len(ordered), p, claim.alpha, claim.relation)
    if share is None:
        return None
    return abs(quantile(ordered, p) / quantile(ordered, share) - 1)


@cache
def _share_that_shows(n: int, p: float, alpha: float, relation: Relation) -> float | None:
    """The share of turns under the boundary at which REGRESS has the power; ``None`` if none is."""
    beta = scipy_stats().beta
    if relation == "at most":
        under = few(n, p, alpha)
        return float(1 - beta.ppf(POWER, n - under, under + 1)) if under >= 0 else None
    many = _many(n, p, alpha)
    return float(beta.ppf(POWER, many, n - many + 1)) if many <= n else None


def _turns_needed(ordered: Sequence[float], p: float, claim: Claim) -> int | None:
    """Turns that would decide if the share of turns under the boundary is as seen."""
    over, under = claim.sides(claim.alpha, claim.beta)
    upto = bisect.bisect_right(ordered, claim.boundary) / len(ordered)
    below = bisect.bisect_left(ordered, claim.boundary) / len(ordered)
    if upto < p:
        return first_that_decides(lambda n: _chance_of_few(few(n, p, over), n, upto) >= POWER)
    if below > p:
        return first_that_decides(
            lambda n: 1 - _chance_of_few(_many(n, p, under) - 1, n, below) >= POWER
        )
    return None


def _chance_of_few(most: int, n: int, share: float) -> float:
    """The binomial chance of at most so many of n."""
    return float(special().bdtr(most, n, share)) if most >= 0 else 0.0


def _too_few_turns(n: int, p: float, claim: Claim) -> tuple[str, ...]:
    """What this many turns can never say, and how many could (59 to PASS p95 at 5 %)."""
    over, under = claim.sides(claim.alpha, claim.beta)
    ever = _turns_ever(1 - p, over), _turns_ever(p, under)
    return tuple(
        f"{quantile_name(p)} of {n} turns can never be {word}: that takes at least {fewest}"
        for word, fewest in zip(("REGRESS", "PASS"), claim.sides(*ever), strict=True)
        if n < fewest
    )


def _turns_ever(p: float, level: float) -> int:
    """The fewest values that, all on one side, have a chance of at most ``level``."""
    return math.ceil(math.log(level) / math.log(p) - _ROUNDING)
