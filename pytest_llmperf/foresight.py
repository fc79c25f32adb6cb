"""What can be said of a run's gates before anything boots: which could never be decided.

What a test claims is read in ``asserted``; how much to measure by history is in ``planning``.
"""

from __future__ import annotations

from collections.abc import Iterator

from pytest_llmperf.asserted import Claims
from pytest_llmperf.assumption import BOOTS, Relation
from pytest_llmperf.assumption.reach import of_quantile, quantile_plan, turns_for_quantile
from pytest_llmperf.declaration import Declaration
from pytest_llmperf.errors import UsageError
from pytest_llmperf.run import Levels
from pytest_llmperf.units import counted, percent, quantile_name


def mistake(declared: Declaration, claims: Claims, levels: Levels, boots: int) -> str | None:
    """Why a gate could never be red, however slow; a gate that cannot fail is a mistake.

    Only what holds for the whole alpha of a run is one: fewer selected tests would not help.
    """
    if boots > 1:
        return None
    for p, relation in _quantiles(claims):
        try:
            quantile_plan(declared.plan.turns, p, levels.alpha, relation)
        except UsageError as error:
            return f"{quantile_name(p)}: {error.what} {error.evidence} {error.next_step}"
    return None


def doubts(
    declared: Declaration, claims: Claims, levels: Levels, share: float, boots: int
) -> Iterator[str]:
    """Say what of a gate this run cannot decide, though a larger one or a part of it could."""
    turns = declared.plan.turns
    if 1 < boots < BOOTS and claims.of_limits:
        yield f"{counted(boots, 'boot')} decide nothing of a build: it takes {BOOTS}"
    if boots > 1:
        return
    for p, relation in _quantiles(claims):
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


def _quantiles(claims: Claims) -> Iterator[tuple[float, Relation]]:
    for p in claims.latencies:
        yield p, "at most"
    if claims.is_throughput:
        yield 0.5, "at least"
