"""Numbers of which one boot gives one, held against a limit: by a margin, or over boots.

What the numbers are is in ``arrivals`` and ``rungs``; tests over boots are in ``assumption``.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pytest_llmperf import assumption
from pytest_llmperf.assertions import too_few_boots
from pytest_llmperf.budget import Budget
from pytest_llmperf.load.burst import Bounded
from pytest_llmperf.run import Run
from pytest_llmperf.units import percent, quantity
from pytest_llmperf.verdict import (
    Verdict,
    Word,
    certain,
    claim_text,
    judge,
    undecided,
    unjudged,
)

Limit = float | Budget
BUILD = "this build"
_NOT_SHOWN = (
    "the quantile falls among requests that were never answered: it is more than they had waited",
    "a client that waits longer, or a server that answers more",
)


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """What is asserted of one number a boot."""

    what: str
    relation: assumption.Relation
    limit: Limit
    unit: str
    scope: str
    """How far it holds on one boot; over several it is the build's."""

    @property
    def boundary(self) -> float | None:
        """The limit as a number; ``None`` where this machine has no such budget."""
        return self.limit.limit if isinstance(self.limit, Budget) else float(self.limit)

    @property
    def words(self) -> str:
        """The claim in words."""
        if self.boundary is None:
            return self.what
        return claim_text(self.what, self.relation, self.boundary, self.unit)


def held(claim: Claim, found: Sequence[Bounded], run: Run) -> Verdict:
    """Judge a claim by one number a boot."""
    boundary, scope = claim.boundary, claim.scope if run.distinct_boots == 1 else BUILD
    if boundary is None:
        missing = claim.limit.missing if isinstance(claim.limit, Budget) else ""
        return unjudged(missing, claim=claim.words, scope=scope, unit=claim.unit)
    few = too_few_boots(run)
    if few is not None:
        return undecided(*few, claim=claim.words, scope=scope)
    if len(found) == 1:
        return _seen_once(claim, found[0], boundary, run.levels.detect)
    return _over_boots(claim, found, boundary, run)


def _seen_once(claim: Claim, found: Bounded, boundary: float, margin: float) -> Verdict:
    """Decide a number without known spread where it is clear of its limit by the margin."""
    over = found.at_s / boundary
    worse = over if claim.relation == "at most" else 1 / over
    shown = f"{'> ' if found.is_more else ''}{quantity(found.at_s, claim.unit)}"
    against = f"{shown} against {quantity(boundary, claim.unit)}"
    word: Word
    if worse >= 1 + margin:
        word, reason = "REGRESS", f"{against} is worse by more than {percent(margin)}"
    elif worse * (1 + margin) <= 1 and not found.is_more:
        word, reason = "PASS", f"{against} is better by more than {percent(margin)}"
    elif found.is_more:
        return undecided(*_NOT_SHOWN, claim=claim.words, scope=claim.scope)
    else:
        word = "INCONCLUSIVE"
        reason = f"{against} is within {percent(margin)}, and one boot shows no spread"
    return certain(
        word,
        reason,
        claim=claim.words,
        scope=claim.scope,
        unit=claim.unit,
        would_decide=f"{assumption.BOOTS} boots or more (--llmperf-mode=gate)"
        if word == "INCONCLUSIVE"
        else None,
    )


def _over_boots(claim: Claim, found: Sequence[Bounded], boundary: float, run: Run) -> Verdict:
    """Boots are the replicates; a number that is only a bound from below cannot pass."""
    comparison = assumption.quantile_against_over_boots(
        [[each.at_s] for each in found],
        p=0.5,
        limit=boundary,
        alpha=run.levels.alpha,
        beta=run.levels.beta,
        relation=claim.relation,
    )
    verdict = judge(comparison, (), claim=claim.words, scope=BUILD, unit=claim.unit)
    if verdict.word == "PASS" and any(each.is_more for each in found):
        return undecided(*_NOT_SHOWN, claim=claim.words, scope=BUILD)
    return verdict
