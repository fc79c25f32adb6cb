"""No mean is called better when its tail is worse: what takes a PASS away from two arms.

The tests are in ``assumption.tail``. A budget's own quantiles are judged in ``assertions``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from pytest_llmperf.assumption import BOOTS
from pytest_llmperf.assumption.boots import log_quantile
from pytest_llmperf.assumption.tail import FEWEST_TURNS, TAIL, Tail, tail_of_boots, tail_of_turns
from pytest_llmperf.units import probability, ratio
from pytest_llmperf.verdict import Verdict

if TYPE_CHECKING:
    from pytest_llmperf.run import Run

_DECIDES = "an assertion of its own on p95, or a cause that is found and mended"


def kept(verdict: Verdict, candidate: Run, reference: Run, *, tolerance: float) -> Verdict:
    """The verdict, but for a PASS whose slow turns are slower than the reference's."""
    if verdict.word != "PASS":
        return verdict
    found = tail_between(candidate, reference, tolerance=tolerance)
    return taken(verdict, found) if found is not None and found.is_worse else verdict


def taken(verdict: Verdict, found: Tail) -> Verdict:
    """A PASS made INCONCLUSIVE by a tail that is worse."""
    return msgspec.structs.replace(
        verdict,
        word="INCONCLUSIVE",
        reason=f"its typical turn holds the claim, but its tail is worse: p95 is "
        f"{ratio(found.ratio)} of the reference's ({probability(found.p)})",
        would_decide=_DECIDES,
    )


def tail_between(candidate: Run, reference: Run, *, tolerance: float) -> Tail | None:
    """Compare the slow ends: by boots where there are several, else by one boot's turns."""
    mine, other = (_durations(each) for each in (candidate, reference))
    if min(map(len, (*mine, *other))) < FEWEST_TURNS:
        return None
    if min(len(mine), len(other)) < BOOTS:
        return tail_of_turns(mine[-1], other[-1])
    logs = [[log_quantile(boot, TAIL) for boot in arm] for arm in (mine, other)]
    return tail_of_boots(logs[0], logs[1], more=tolerance)


def tail_logs(run: Run) -> tuple[float, ...]:
    """Each boot's log p95 as a duration; empty where a boot has too few turns."""
    boots = _durations(run)
    if min(map(len, boots)) < FEWEST_TURNS:
        return ()
    return tuple(log_quantile(boot, TAIL) for boot in boots)


def _durations(run: Run) -> list[Sequence[float]]:
    """Each boot's turns as durations: a rate counts by its inverse."""
    rate = run.denominator.higher_is_better
    return [[1 / value if rate else value for value in boot] for boot in run.values]
