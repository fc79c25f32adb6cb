"""What can be said of a run's gates before anything boots: which could never be decided.

What a test claims is read in ``asserted``; how much to measure by history is in ``planning``.
"""

from __future__ import annotations

from collections.abc import Iterator

from pytest_llmperf.asserted import Claims
from pytest_llmperf.assumption import BOOTS, Relation
from pytest_llmperf.assumption.reach import of_quantile, quantile_plan, turns_for_quantile
from pytest_llmperf.assumption.student import turns_to_estimate
from pytest_llmperf.declaration import Declaration
from pytest_llmperf.errors import UsageError
from pytest_llmperf.markers import Burst, Failover, Ladder
from pytest_llmperf.run import Levels
from pytest_llmperf.units import counted, percent, quantile_name


def mistake(declared: Declaration, claims: Claims, levels: Levels, boots: int) -> str | None:
    """Why a gate could never be red, however slow; a gate that cannot fail is a mistake.

    Only what holds for the whole alpha of a run is one: fewer selected tests would not help.
    """
    if boots > 1 or declared.windows is not None:
        return None
    for p, relation in _quantiles(declared, claims):
        try:
            quantile_plan(declared.plan.turns, p, levels.alpha, relation)
        except UsageError as error:
            return f"{quantile_name(p)}: {error.what} {error.evidence} {error.next_step}"
    return None


def stated(declared: Declaration, levels: Levels) -> dict[str, float]:
    """The tolerance and the change to detect: the marker's, else the profile's."""
    plan = declared.plan
    return {
        "tolerance": levels.tolerance if plan.tolerance is None else plan.tolerance,
        "detect": levels.detect if plan.detect is None else plan.detect,
    }


def blindness(declared: Declaration, levels: Levels) -> str | None:
    """That a gate is to see a change which it tolerates, in words; else ``None``."""
    of = stated(declared, levels)
    if of["detect"] > of["tolerance"]:
        return None
    return f"detect is {of['detect']:g} and tolerance {of['tolerance']:g}"


def doubts(
    declared: Declaration, claims: Claims, levels: Levels, share: float, boots: int
) -> Iterator[str]:
    """Say what of a gate this run cannot decide, though a larger one or a part of it could."""
    if 1 < boots < BOOTS and claims.of_limits:
        yield f"{counted(boots, 'boot')} decide nothing of a build: it takes {BOOTS}"
    if boots > 1:
        return
    for p, relation in _quantiles(declared, claims):
        if declared.windows is None:
            yield from _of_turns(declared.plan.turns, p, relation, levels, share)
        else:
            yield from _of_windows(declared, declared.windows, p)


def _of_turns(
    turns: int, p: float, relation: Relation, levels: Levels, share: float
) -> Iterator[str]:
    name, level = quantile_name(p), levels.alpha * share
    if of_quantile(turns, p, relation) > level:
        fewest = turns_for_quantile(p, level, relation)
        yield (
            f"{name} of {counted(turns, 'turn')} can never be REGRESS at this claim's share "
            f"of alpha, {percent(level)}: that takes {fewest} turns, or fewer gates at once"
        )
    other: Relation = "at least" if relation == "at most" else "at most"
    if of_quantile(turns, p, other) > levels.beta:
        fewest = turns_for_quantile(p, levels.beta, other)
        yield f"{name} of {counted(turns, 'turn')} can never be PASS: that takes {fewest} turns"


def _of_windows(declared: Declaration, windows: int, p: float) -> Iterator[str]:
    """Of requests that overlap the window is what is repeated on one boot."""
    name = quantile_name(p)
    if windows < BOOTS:
        yield (
            f"{name} over {counted(windows, 'window')} of load is not judged on one boot: that "
            f"takes {BOOTS} windows"
        )
    each = declared.plan.turns // windows
    if declared.denominator.clock != "span" and each < (fewest := turns_to_estimate(p)):
        yield (
            f"{name} of a window of {counted(each, 'turn')} cannot be estimated: that takes "
            f"{fewest} a window"
        )


def _quantiles(declared: Declaration, claims: Claims) -> Iterator[tuple[float, Relation]]:
    """What is judged by turns or windows of one boot; a burst's numbers and a ladder's are not."""
    if isinstance(declared.plan, Burst | Ladder | Failover):
        return
    for p in claims.latencies:
        yield p, "at most"
    if claims.is_throughput:
        yield 0.5, "at least"
