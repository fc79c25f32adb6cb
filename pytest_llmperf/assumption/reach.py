"""The smallest p-value that a plan can give, whatever is measured.

A plan that cannot reach its level can never say REGRESS, and a gate that can never fail is a
mistake of the configuration. How small a change a plan can see is in ``sizing``.
"""

from __future__ import annotations

from pytest_llmperf.assumption.comparison import Relation, fraction
from pytest_llmperf.errors import UsageError
from pytest_llmperf.units import counted


def of_quantile(turns: int, p: float, relation: Relation = "at most") -> float:
    """Smallest p-value for REGRESS of ``quantile_against``: every turn on the wrong side."""
    return float((1 - fraction(p) if relation == "at most" else fraction(p)) ** turns)


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
    smallest = of_quantile(turns, p, relation)
    if smallest <= level:
        return
    needed = counted(turns_for_quantile(p, level, relation), "turn")
    raise UsageError(
        f"A quantile test over {counted(turns, 'turn')} can never say REGRESS.",
        f"Its smallest p-value is {smallest:.3g}, and its level is {level:.3g}.",
        f"Plan {needed}; a gate that cannot fail is no gate.",
    )
