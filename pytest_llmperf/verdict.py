"""From a comparison and the contradictions of its evidence to one of four words, with its why.

The tests are in ``assumption``, the proofs in ``proof``; where words are printed is ``report``,
where they become a test's outcome is pytest's side.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import Literal, Protocol

import msgspec

from pytest_llmperf.assumption import Comparison, Relation
from pytest_llmperf.denominator import Denominator
from pytest_llmperf.units import bounds, counted, measured, percent, probability, quantity

Word = Literal["PASS", "REGRESS", "INCONCLUSIVE", "INVALID"]

WORDS: tuple[Word, ...] = ("PASS", "REGRESS", "INCONCLUSIVE", "INVALID")
"""The four words, as every list of them is ordered."""

_WORST_FIRST: tuple[Word, ...] = ("INVALID", "REGRESS", "INCONCLUSIVE", "PASS")

EXIT_REGRESS = 10
EXIT_INVALID = 11
EXIT_FAILED = 1
EXIT_INCONCLUSIVE = 12
EXIT_NONE_JUDGED = 13

_AFTER_REGRESS = (
    "compare the figures beside it to see which part moved; measuring again without a change "
    "is no evidence"
)
_PAGE = 96
_LABEL = 16


class Contradicting(Protocol):
    """What a contradiction of the evidence must say."""

    @property
    def kind(self) -> str:
        """A stable name of this sort of contradiction."""

    @property
    def reason(self) -> str:
        """What the measurement did not measure, in a sentence."""

    @property
    def evidence(self) -> str:
        """What was seen that says so."""

    @property
    def remedy(self) -> str:
        """What to do about it."""


class Objection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A contradiction as a verdict keeps it: plain text."""

    kind: str
    reason: str
    evidence: str
    remedy: str


class Verdict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One claim's verdict. ``word`` is ``None`` where there was nothing to judge it by."""

    word: Word | None
    claim: str
    """What was asserted: ``p50 of cached_turn at most 0.250 s``."""
    scope: str
    """How far it holds: ``this boot only``, ``this pair of boots only``, ``this build``."""
    reason: str
    unit: str = "s"
    """The unit of the comparison's numbers; ``x`` for a ratio."""
    would_decide: str | None = None
    """With INCONCLUSIVE: how many more replicates, and what these could have seen."""
    comparison: Comparison | None = None
    contradictions: tuple[Objection, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """The comparison's warnings that the reason does not give already."""
        warnings = self.comparison.warnings if self.comparison else ()
        return tuple(text for text in warnings if text not in self.reason)


def claim_text(what: str, relation: Relation, boundary: float, unit: str) -> str:
    """Word a claim: ``p50 of cached_turn at most 0.250 s``."""
    return f"{what} {relation} {quantity(boundary, unit)}"


def judge(
    comparison: Comparison | None,
    contradictions: Sequence[Contradicting],
    *,
    claim: str,
    scope: str,
    unit: str,
) -> Verdict:
    """Give the word: INVALID, else REGRESS, else PASS, else INCONCLUSIVE.

    A test that could not be made decides nothing, so without one the word is INCONCLUSIVE. An
    INVALID verdict keeps no comparison: its number is of something else.
    """
    told = (Objection(c.kind, c.reason, c.evidence, c.remedy) for c in contradictions)
    objections = tuple(dict.fromkeys(told))  # two arms beside one another see the same machine
    word = "INVALID" if objections else _word(comparison)
    return Verdict(
        word=word,
        claim=claim,
        scope=scope,
        reason=objections[0].reason if objections else _reason(word, comparison, unit),
        unit=unit,
        would_decide=_would_decide(comparison) if word == "INCONCLUSIVE" else None,
        comparison=None if objections else comparison,
        contradictions=objections,
    )


def undecided(reason: str, would_decide: str | None = None, *, claim: str, scope: str) -> Verdict:
    """Give INCONCLUSIVE for a reason outside the numbers, such as a round that did not run."""
    return Verdict(
        word="INCONCLUSIVE", claim=claim, scope=scope, reason=reason, would_decide=would_decide
    )


def certain(
    word: Word, reason: str, *, claim: str, scope: str, unit: str, would_decide: str | None = None
) -> Verdict:
    """Give the word for what was counted or seen, where nothing is inferred from a sample."""
    return Verdict(
        word=word, claim=claim, scope=scope, reason=reason, unit=unit, would_decide=would_decide
    )


def unjudged(reason: str, *, claim: str = "", scope: str = "", unit: str = "s") -> Verdict:
    """Give no word, with the reason ("no budget on this machine"); never green by absence."""
    return Verdict(word=None, claim=claim, scope=scope, reason=reason, unit=unit)


def worst(verdicts: Iterable[Verdict]) -> Word | None:
    """Give the word of several claims together; ``None`` where none was judged."""
    words = {verdict.word for verdict in verdicts}
    return next((word for word in _WORST_FIRST if word in words), None)


def exit_code(
    words: Iterable[Word | None],
    *,
    strict: bool,
    ordinary_failures: int,
    selected: int,
    judged: int,
    pytest_status: int = 0,
) -> int:
    """Give the process's exit status from all gates' words.

    10 REGRESS, 11 INVALID, 1 another failure, 12 INCONCLUSIVE under strict, 13 gates selected
    and none judged, in this precedence; pytest's own 2 to 5 are left alone, and its 1 is never
    turned into 0.
    """
    if pytest_status not in (0, EXIT_FAILED):
        return pytest_status
    seen = set(words)
    reached = (
        (EXIT_REGRESS, "REGRESS" in seen),
        (EXIT_INVALID, "INVALID" in seen),
        (EXIT_FAILED, ordinary_failures > 0),
        (EXIT_INCONCLUSIVE, strict and "INCONCLUSIVE" in seen),
        (EXIT_NONE_JUDGED, selected > 0 and judged == 0),
    )
    return next((status for status, holds in reached if holds), pytest_status)


def failure_parts(
    verdict: Verdict,
    denominator: Denominator,
    evidence: str,
    beside: Sequence[tuple[str, str]] = (),
) -> tuple[str, str, str]:
    """Give what happened, the evidence and the next step, for the error of a failing gate.

    ``beside`` holds (label, value) of the same samples under other denominators.
    """
    found, shown = verdict.comparison, () if verdict.contradictions else beside
    lines = [
        ("estimate", _estimate(found, verdict.unit)),
        *_objections(verdict),
        ("counted over", denominator.words),
        ("formula", denominator.formula),
        ("scope", verdict.scope),
        ("assumption", found.assumption if found else None),
        *(("note", text) for text in verdict.notes),
        ("evidence", evidence),
        *(("beside", f"{label} {value}") for label, value in shown),
    ]
    what = f"{verdict.word or 'not judged'}: {verdict.claim}"
    why = "\n".join(_labelled(label, text) for label, text in lines if text)
    return what, why, "\n".join(_labelled("next step", text) for text in _next_steps(verdict))


def _word(comparison: Comparison | None) -> Word:
    if comparison is None:
        return "INCONCLUSIVE"
    if comparison.p_regress is not None and comparison.p_regress <= comparison.alpha:
        return "REGRESS"
    if comparison.p_pass is not None and comparison.p_pass <= comparison.beta:
        return "PASS"
    return "INCONCLUSIVE"


def _reason(word: Word, comparison: Comparison | None, unit: str) -> str:
    if comparison is None:
        return "nothing could be compared"
    if word == "INCONCLUSIVE":
        return "; ".join([*_straddles(comparison, unit), *comparison.warnings])
    is_over = (word == "REGRESS") == (comparison.relation == "at most")
    end = comparison.low if is_over else comparison.high
    p, level = (
        (comparison.p_regress, comparison.alpha)
        if word == "REGRESS"
        else (comparison.p_pass, comparison.beta)
    )
    name, side = ("lower", "above") if is_over else ("upper", "below")
    return (
        f"even the {name} end of the interval, {quantity(end, unit)}, is {side} "
        f"{quantity(comparison.boundary, unit)} ({probability(p)} at level {percent(level)})"
    )


def _straddles(comparison: Comparison, unit: str) -> list[str]:
    if comparison.p_regress is None and comparison.p_pass is None:
        return []
    ends = bounds(comparison.low, comparison.high, like=comparison.estimate, unit=unit)
    return [f"the interval {ends} does not exclude {quantity(comparison.boundary, unit)}"]


def _would_decide(comparison: Comparison | None) -> str | None:
    if comparison is None:
        return None
    n, noun = comparison.n, comparison.replicate
    needed, seen = comparison.needed, comparison.detectable
    if needed is not None and needed > n:
        more = f"about {counted(needed - n, f'more {noun}')} would decide at this estimate"
    else:
        more = f"how many more {noun}s would decide cannot be said from this estimate"
    if seen is None:
        return f"{more}; {counted(n, noun)} cannot see any change"
    return f"{more}; {counted(n, noun)} can see a change of {percent(seen)} or more"


def _estimate(found: Comparison | None, unit: str) -> str | None:
    if found is None:
        return None
    number = measured(found.estimate, found.low, found.high, unit)
    return f"{number} at {percent(found.confidence)}, from {counted(found.n, found.replicate)}"


def _objections(verdict: Verdict) -> list[tuple[str, str]]:
    """Why, and for every contradiction what was seen."""
    if not verdict.contradictions:
        return [("why", verdict.reason)]
    return [
        line
        for each in verdict.contradictions
        for line in (("why", each.reason), ("seen", each.evidence))
    ]


def _next_steps(verdict: Verdict) -> list[str]:
    if verdict.contradictions:
        return list(dict.fromkeys(each.remedy for each in verdict.contradictions))
    if verdict.word == "REGRESS":
        return [_AFTER_REGRESS]
    return [verdict.would_decide or "none"]


def _labelled(label: str, text: str) -> str:
    """A text with its label before it, each of its lines wrapped."""
    lines = (
        textwrap.wrap(line, _PAGE - _LABEL, break_long_words=False, break_on_hyphens=False)
        for line in text.splitlines()
    )
    hanging = ("\n" + " " * _LABEL).join(line for wrapped in lines for line in wrapped)
    return f"  {label:<{_LABEL - 2}}{hanging}"
