"""The smallest p-value that a plan can give, whatever is measured.

A plan that cannot reach its level can never say REGRESS, and a gate that can never fail is a
mistake of the configuration. How small a change a plan can see is in ``sizing``.
"""

from __future__ import annotations

from math import comb

from pytest_llmperf.assumption.comparison import Relation, fraction
from pytest_llmperf.assumption.looks import Design
from pytest_llmperf.errors import UsageError
from pytest_llmperf.units import counted


def of_quantile(turns: int, p: float, relation: Relation = "at most") -> float:
    """Smallest p-value for REGRESS of ``quantile_against``: every turn on the wrong side."""
    return float((1 - fraction(p) if relation == "at most" else fraction(p)) ** turns)


def of_student(replicates: int) -> float:
    """Smallest p-value of a t test: 0, for it has no floor, but 1 without a spread."""
    return 0.0 if replicates > 1 else 1.0


def of_signs(pairs: int) -> float:
    """Smallest one-sided p-value of a sign, sign-flip or signed-rank test over pairs."""
    return float(0.5**pairs)


def of_ranks(first: int, second: int) -> float:
    """Smallest one-sided p-value of a rank test between two samples (Mann and Whitney)."""
    return 1 / comb(first + second, first)


def of_confirm(pairs: int, design: Design) -> float:
    """Smallest p-value of a confirmation of at most so many pairs: 1 before the first look."""
    return 0.0 if pairs >= design.looks[0] else 1.0


def require_reachable(smallest: float, level: float, *, plan: str, needs: str) -> None:
    """Refuse a plan that can never reach its level.

    :param plan: the plan in words, such as "5 pairs under a signed-rank test".
    :param needs: what could reach it, such as "7 pairs".
    :raises UsageError: the smallest p-value is over the level.
    """
    if smallest <= level:
        return
    raise UsageError(
        f"{plan} can never say REGRESS.",
        f"Its smallest p-value is {smallest:.3g}, and its level is {level:.3g}.",
        f"Plan {needs}; a gate that cannot fail is no gate.",
    )


def turns_for_quantile(p: float, level: float, relation: Relation = "at most") -> int:
    """The fewest turns whose smallest p-value reaches a level."""
    turns = 1
    while of_quantile(turns, p, relation) > level:
        turns += 1
    return turns


def quantile_plan(turns: int, p: float, level: float, relation: Relation = "at most") -> None:
    """Refuse so many turns of one boot where their quantile's test can never say REGRESS.

    :raises UsageError: it cannot.
    """
    needed = turns_for_quantile(p, level, relation)
    require_reachable(
        of_quantile(turns, p, relation),
        level,
        plan=f"A quantile test over {counted(turns, 'turn')}",
        needs=counted(needed, "turn"),
    )


def confirm_plan(pairs: int, design: Design, level: float) -> None:
    """Refuse so few pairs of boots that no look is reached.

    :raises UsageError: they are fewer than the first look takes.
    """
    require_reachable(
        of_confirm(pairs, design),
        level,
        plan=f"A confirmation of at most {counted(pairs, 'pair')} of boots",
        needs=f"{design.looks[0]} pairs of boots or more",
    )
