"""Explanations of a change between measurements of one denominator, with what differs in them.

How a change is split is in ``split``; whether it is a regression is not asked here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from pytest_llmperf.attribution.split import (
    ACCEPTANCE,
    FIRST_TOKEN,
    RATIO,
    Moved,
    Part,
    cached_text,
    moved_text,
    split,
    split_decode,
    split_wall,
    unequal_lengths,
)
from pytest_llmperf.attribution.terms import Terms, acceptance_length, joint, mean_log, terms
from pytest_llmperf.errors import UsageError
from pytest_llmperf.evidence import Measured
from pytest_llmperf.identity import (
    Difference,
    Half,
    confounded,
    differences,
    subject_of,
    subject_of_pair,
)
from pytest_llmperf.units import NOT_MEASURED

_SIDES = ("the candidate now", "the candidate then", "the reference now", "the reference then")


class Explanation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a number came to change, and what differs in what was measured."""

    headline: tuple[str, ...] = ()
    """A sentence for each number that could be split."""
    parts: tuple[Part, ...] = ()
    subject: tuple[Difference, ...] = ()
    notes: tuple[str, ...] = ()
    """What the evidence lacks, and what makes the numbers not comparable."""

    @property
    def is_confounded(self) -> bool:
        """Whether more than one thing of the subject is known to differ."""
        return confounded(self.subject)

    @property
    def lines(self) -> tuple[str, ...]:
        """Everything in words, for a report."""
        return (*self.headline, *(each.text for each in self.parts), *self.notes, self.cause)

    @property
    def cause(self) -> str:
        """What differs in the subject, in words."""
        known = [str(each) for each in self.subject if not each.is_unknown]
        unknown = [each.field for each in self.subject if each.is_unknown]
        doubt = f"; not known to agree: {', '.join(unknown)}" if unknown else ""
        if not known:
            return f"nothing in the subject is known to differ{doubt}"
        if self.is_confounded:
            return f"confounded, {len(known)} differences in the subject: {'; '.join(known)}{doubt}"
        return f"the subject differs in one thing: {'; '.join(known)}{doubt}"


class Arms(msgspec.Struct, frozen=True, kw_only=True):
    """The two arms of a ratio, one ``Measured`` a boot each."""

    candidate: Sequence[Measured]
    reference: Sequence[Measured]


def explain(now: Sequence[Measured], then: Sequence[Measured]) -> Explanation:
    """Split the change from then to now, one ``Measured`` a boot; each side has at least one.

    Decode throughput is acceptance length over step time, so the change of its log is exactly the
    change of the one's log less the other's. Wall clock is time to first token plus decode.

    :raises UsageError: a side is empty, or the two are not of one denominator.
    """
    _check_comparable(now, then)
    sides = joint(map(terms, now)), joint(map(terms, then))
    clock = now[0].arm.denominator.clock
    if clock == "first_token":
        found = _of_first_token(*sides)
    else:
        found = explain_terms(*sides, wall=clock == "wall")
    subject = differences(subject_of(now[0]), subject_of(then[0]))
    return msgspec.structs.replace(found, subject=subject)


def explain_terms(now: Terms, then: Terms, *, wall: bool = True) -> Explanation:
    """The same from terms alone, such as those that history keeps; nothing is said of a subject.

    :param wall: whether the number is of whole turns, which decode is then a part of.
    """
    splits = [split_decode(now, then)]
    if wall:
        splits.insert(0, split_wall(now, then))
    lengths = unequal_lengths(now, then) if wall else ()
    return Explanation(
        headline=tuple(each.headline for each in splits if each.headline),
        parts=tuple(part for each in splits for part in each.parts),
        notes=(*(each.lacking for each in splits if each.lacking), *lengths),
    )


def explain_ratio(now: Arms, then: Arms) -> Explanation:
    """Which arm moved a ratio. Formula: change of log ratio = that of one arm less the other's.

    An arm's number is the geometric mean over its turns, whose quotient is the mean block's ratio.

    :raises UsageError: a side is empty, or an arm's two denominators differ.
    """
    _check_comparable(now.candidate, then.candidate)
    _check_comparable(now.reference, then.reference)
    subject = differences(_both(now), _both(then))
    levels = [
        mean_log(each) for each in (now.candidate, then.candidate, now.reference, then.reference)
    ]
    lacking = [name for name, each in zip(_SIDES, levels, strict=True) if each is None]
    if lacking:
        note = f"which arm moved is not known: no turn of {', '.join(lacking)} has a value"
        return Explanation(subject=subject, notes=(note,))
    candidate, candidate_then, reference, reference_then = (each or 0.0 for each in levels)
    of = now.candidate[0].arm.denominator
    sign = 1 if of.higher_is_better else -1
    unit = of.unit_text
    whole = split(
        RATIO,
        (
            math.exp(sign * (candidate_then - reference_then)),
            math.exp(sign * (candidate - reference)),
            "x",
        ),
        [
            Moved("candidate", candidate_then, candidate, sign, unit),
            Moved("reference", reference_then, reference, -sign, unit),
        ],
    )
    return Explanation(headline=(whole.headline,), parts=whole.parts, subject=subject)


def _both(arms: Arms) -> Half:
    return subject_of_pair(arms.candidate[0], arms.reference[0])


def verifying_step(acceptance_length: float, speedup: float) -> float:
    """How many plain steps a step with drafts takes. Formula: acceptance length / decode ratio."""
    return acceptance_length / speedup


def conditions(measured: Measured) -> str:
    """What a speed-up is always printed with: acceptance, content, temperature, quantisation."""
    length = acceptance_length(measured)
    subject = subject_of(measured)
    rows = (
        (ACCEPTANCE, NOT_MEASURED if length is None else f"{length:.2f}"),
        ("content", subject.facts.get("workload.content_class")),
        ("temperature", subject.facts.get("workload.temperature")),
        ("quantisation flag", subject.value("flags.--quantization")),
    )
    return ", ".join(f"{name} {'unknown' if each is None else each}" for name, each in rows)


def _of_first_token(now: Terms, then: Terms) -> Explanation:
    """Time to first token is one part; what is known beside it is how much was cached."""
    if then.first_token_s is None or now.first_token_s is None:
        return Explanation(notes=(f"{FIRST_TOKEN} is not in the evidence of both sides",))
    text = moved_text(FIRST_TOKEN, then.first_token_s, now.first_token_s, "s")
    return Explanation(headline=(text + cached_text(now, then),))


def _check_comparable(now: Sequence[Measured], then: Sequence[Measured]) -> None:
    if not now or not then:
        raise UsageError(
            "A change cannot be split with nothing on one side.",
            f"There are {len(now)} measurements now and {len(then)} then.",
            "Give at least one boot of each.",
        )
    apart = now[0].arm.denominator.differences(then[0].arm.denominator)
    if apart:
        raise UsageError(
            "A change cannot be split between two denominators.",
            "; ".join(apart) + " (now against then).",
            "Compare numbers of one denominator only.",
        )
