"""One-sided t tests on logs: ratios over blocks or boots, and quantiles over several boots.

Tests of one boot's turns, which assume no shape, are in ``ranks``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Literal

import msgspec

from pytest_llmperf.assumption.arrays import special
from pytest_llmperf.assumption.comparison import (
    ALPHA,
    BETA,
    POWER,
    Claim,
    Comparison,
    Relation,
    Replicate,
    claimed,
    first_that_decides,
    fraction,
    logarithms,
    positive,
    scipy_stats,
    some,
)
from pytest_llmperf.assumption.ranks import quantile
from pytest_llmperf.errors import InvalidMeasurement
from pytest_llmperf.units import quantile_name

BOOTS = 3
"""The fewest boots on which a claim about a build can rest."""

_EQUAL = 1e-12
"""Logs that differ by less are equal: what is left is rounding."""

_HOPELESS = 1e4
"""A critical t beyond this (one degree of freedom, a tiny level) can find nothing."""

_NO_NOISE = "all replicates are equal, so no noise was seen and the interval has no width"


def quantile_against_over_boots(
    per_boot: Sequence[Sequence[float]],
    *,
    p: float,
    limit: float,
    alpha: float = ALPHA,
    beta: float = BETA,
    relation: Relation = "at most",
    replicate: Literal["boot", "window"] = "boot",
) -> Comparison:
    """Hold the typical boot's ``p`` quantile against a limit: t over the logs of the quantiles.

    With fewer than three boots, or too few turns in one to estimate ``p``, nothing is tested.
    On one boot, windows of load may stand in their place: it is then a claim on this boot only.

    :raises InvalidMeasurement: no boots, an empty boot, or a value not positive and finite.
    :raises UsageError: a level, the quantile or the limit is out of its range.
    """
    claim, p = claimed(relation, limit, alpha, beta), fraction(p)
    boots = [sorted(positive(turns)) for turns in some(per_boot, replicate)]
    logs = [math.log(quantile(turns, p)) for turns in boots]
    assumption = f"{replicate}s are independent, and the logs of their quantiles normal"
    comparison = _one_sample(logs, claim, replicate=replicate, fewest=BOOTS, assumption=assumption)
    fewest, shortest = turns_to_estimate(p), min(map(len, boots))
    if shortest >= fewest:
        return comparison
    warning = (
        f"a {replicate} of {shortest} turns cannot estimate {quantile_name(p)}; it takes {fewest}"
    )
    return msgspec.structs.replace(
        comparison, p_regress=None, p_pass=None, warnings=(*comparison.warnings, warning)
    )


def turns_to_estimate(p: float) -> int:
    """The fewest turns of one boot or window whose ``p`` quantile is no mere extreme.

    Formula: (2 - tail) / (3 tail), with the tail that is nearer: there the median-unbiased
    position of the quantile, (n + 1/3) p + 1/3, lies within the sample.
    """
    tail = min(p, 1 - p)
    return math.ceil((2 - tail) / (3 * tail) - _EQUAL)


def ratio_against(
    log_ratios: Sequence[float],
    *,
    floor: float,
    alpha: float = ALPHA,
    beta: float = BETA,
    replicate: Replicate = "block",
    relation: Relation = "at least",
) -> Comparison:
    """Hold a ratio against a floor by one-sided t tests on the logs of paired replicates.

    :raises InvalidMeasurement: no log ratios, or one that is not finite.
    :raises UsageError: a level or the floor is out of its range.
    """
    claim = claimed(relation, floor, alpha, beta)
    assumption = f"{replicate}s are independent, and the logs of their ratios normal"
    logs = logarithms(log_ratios)
    return _one_sample(logs, claim, replicate=replicate, fewest=2, assumption=assumption)


def two_sample_ratio_against(
    log_a: Sequence[float],
    log_b: Sequence[float],
    *,
    floor: float,
    alpha: float = ALPHA,
    beta: float = BETA,
    relation: Relation = "at least",
) -> Comparison:
    """Hold the ratio a/b of alternating boots against a floor: pooled two-sample t on logs.

    With fewer than two boots in an arm nothing is tested. ``n`` counts the boots of both arms.

    :raises InvalidMeasurement: an arm without boots, or a log that is not finite.
    :raises UsageError: a level or the floor is out of its range.
    """
    claim = claimed(relation, floor, alpha, beta)
    a, b = logarithms(log_a), logarithms(log_b)
    df = len(a) + len(b) - 2
    pooled = math.sqrt((_squares(a) + _squares(b)) / df) if df else 0.0
    comparison = t_comparison(
        claim,
        centre=_mean(a) - _mean(b),
        se=pooled * math.sqrt(1 / len(a) + 1 / len(b)),
        df=df if min(len(a), len(b)) > 1 else 0,
        plan=lambda n: (pooled * math.sqrt(4 / n), n - 2),
        replicate="boot",
        n=len(a) + len(b),
        assumption="boots are independent, the logs of their values normal and equally spread",
    )
    needed = comparison.needed
    return msgspec.structs.replace(comparison, needed=needed and needed + needed % 2)


def block_log_ratios(a: Sequence[tuple[int, float]], b: Sequence[tuple[int, float]]) -> list[float]:
    """Give the mean log of ``a`` less that of ``b`` for each block, in the order of blocks.

    Each arm is a sequence of (block, value).

    :raises InvalidMeasurement: a block lacks an arm, or a value is not positive and finite.
    """
    arms = _by_block(a), _by_block(b)
    blocks, alone = arms[0].keys() | arms[1].keys(), arms[0].keys() ^ arms[1].keys()
    if alone:
        raise InvalidMeasurement(
            f"{len(alone)} of {len(blocks)} blocks lack one of their two arms.",
            f"Blocks with one arm only: {', '.join(map(str, sorted(alone)))}.",
            "A ratio needs both arms of every block; find out why those turns are missing.",
        )
    return [_mean(arms[0][block]) - _mean(arms[1][block]) for block in sorted(blocks)]


def _one_sample(
    logs: Sequence[float], claim: Claim, *, replicate: Replicate, fewest: int, assumption: str
) -> Comparison:
    n = len(logs)
    sd = math.sqrt(_squares(logs) / (n - 1)) if n > 1 else 0.0
    comparison = t_comparison(
        claim,
        centre=_mean(logs),
        se=sd / math.sqrt(n),
        df=n - 1 if n >= fewest else 0,
        plan=lambda more: (sd / math.sqrt(more), more - 1),
        replicate=replicate,
        n=n,
        assumption=assumption,
    )
    if n >= fewest:
        return comparison
    there = "there is 1" if n == 1 else f"there are {n}"
    warning = f"a test takes at least {fewest} {replicate}s, and {there}"
    return msgspec.structs.replace(comparison, warnings=(warning,))


def t_comparison(
    claim: Claim,
    *,
    centre: float,
    se: float,
    df: int,
    plan: Callable[[int], tuple[float, int]],
    **known: Any,  # noqa: ANN401 - the struct checks them
) -> Comparison:
    """Test a mean of logs; ``plan`` gives standard error and df of another ``n``."""
    known["estimate"] = math.exp(centre)
    gap = centre - math.log(claim.boundary)
    if df < 1:
        return claim.comparison(**known, low=None, high=None, p_regress=None, p_pass=None)
    regress, passes = claim.sides(_t_tail(gap, se, df), _t_tail(-gap, se, df))
    over, under = claim.sides(claim.alpha, claim.beta)
    return claim.comparison(
        **known,
        low=_exp(centre - _t_critical(df, over) * se),
        high=_exp(centre + _t_critical(df, under) * se),
        p_regress=regress,
        p_pass=passes,
        detectable=_t_detectable(se, df, claim),
        needed=_replicates_needed(gap, plan, over if gap > 0 else under),
        warnings=() if se else (_NO_NOISE,),
    )


def _t_tail(gap: float, se: float, df: int) -> float:
    """The chance of a gap this large or larger with none in truth; without noise, by its sign."""
    if se == 0:
        return 0.5 if abs(gap) <= _EQUAL else float(gap < 0)
    return float(special().stdtr(df, -gap / se))


@cache
def _t_critical(df: int, level: float) -> float:
    return -float(special().stdtrit(df, level))


@cache
def noncentrality(df: int, level: float, power: float = POWER) -> float:
    """Standard errors from the boundary at which a t test has a power."""
    from scipy import optimize  # noqa: PLC0415 - a plain pytest run does not pay for scipy

    critical = _t_critical(df, level)
    if critical > _HOPELESS:
        return math.inf
    chance = scipy_stats().nct.sf
    most = 3 * critical + 10
    return float(optimize.brentq(lambda nc: chance(critical, df, nc) - power, 0, most))


def _t_detectable(se: float, df: int, claim: Claim) -> float | None:
    if se == 0:
        return 0.0
    shift = noncentrality(df, claim.alpha) * se
    factor = _exp(shift if claim.relation == "at most" else -shift)
    return None if factor is None else abs(factor - 1)


def _replicates_needed(
    gap: float, plan: Callable[[int], tuple[float, int]], level: float
) -> int | None:
    if abs(gap) <= _EQUAL:
        return None

    def decides(n: int) -> bool:
        se, df = plan(n)
        return df > 0 and abs(gap) >= se * noncentrality(df, level)

    return first_that_decides(decides)


def _by_block(arm: Sequence[tuple[int, float]]) -> dict[int, list[float]]:
    values = positive([value for _, value in arm])
    logs: dict[int, list[float]] = {}
    for (block, _), value in zip(arm, values, strict=True):
        logs.setdefault(block, []).append(math.log(value))
    return logs


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _squares(values: Sequence[float]) -> float:
    """The sum of squares about the mean; values equal but for rounding give exactly zero."""
    centre = _mean(values)
    if max(values) - min(values) <= _EQUAL:
        return 0.0
    return math.fsum((value - centre) ** 2 for value in values)


def _exp(value: float) -> float | None:
    """The exponential; ``None`` where it is beyond any number."""
    try:
        return math.exp(value)
    except OverflowError:
        return None
