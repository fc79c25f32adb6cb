"""What our samples are of, in a claim's own words, and where the two differ.

How a claim is read is in ``file``; judging it is in the package's own module.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

import msgspec

from pytest_llmperf.claims.published.file import Claim, Conditions
from pytest_llmperf.counters import difference
from pytest_llmperf.record import Engine
from pytest_llmperf.run import Pair, Run
from pytest_llmperf.units import percent

T = TypeVar("T")

_MEASURED = frozenset({"acceptance_length"})
"""What a run comes to rather than is set to: it explains a gap, and refuses no comparison."""

_ALIKE = 0.05
"""Acceptance lengths that differ by less explain nothing."""


def conditions_of(run: Run) -> Conditions:
    """Under which conditions a run was measured; what its evidence does not say is unknown."""
    boot = run.measured
    length = difference(boot.before, boot.after).acceptance_length
    return Conditions(
        content_class=_only({turn.content_class for turn in run.turns}),
        temperature=_only({turn.temperature for turn in run.turns}),
        draft_tokens=boot.arm.declared.draft_tokens,
        acceptance_length=None if length is None else round(length, 2),
        quantisation=_quantisation(boot.engine),
    )


def refusals(claim: Claim, run: Run, pair: Pair | None) -> list[str]:
    """Why the claim cannot be held against these samples; empty where it can.

    Clock and unit are counted anew from the same samples, so that only an unknown one refuses.
    """
    stated, own = claim.denominator, run.denominator
    counted = {"clock": stated.clock, "unit": claim.counted_unit}
    found = [f"{name}: unknown in the claim" for name, value in counted.items() if value is None]
    if own.is_load:
        found.append(f"arrival: unknown in the claim, {own.load_words} here")
    elif stated.clock == "span":
        found.append("clock: span in the claim, one stream here")
    if stated.prefix != "any":
        found += _apart("prefix", stated.prefix, own.prefix)
    found += _apart("streams", stated.streams, own.streams)
    if claim.unit == "x":
        found += _apart("factor", stated.factor, pair.factor if pair else None)
    return [*found, *_unequal(claim.conditions, conditions_of(run))]


def unknown(claim: Claim) -> list[str]:
    """Conditions that the claim does not say."""
    stated = msgspec.structs.asdict(claim.conditions)
    return [_spoken(name) for name, value in stated.items() if value is None]


def acceptance_gap(claim: Claim, run: Run) -> str | None:
    """How far the claim's acceptance length is from ours, where both are known and differ."""
    theirs, mine = claim.conditions.acceptance_length, conditions_of(run).acceptance_length
    if theirs is None or mine is None or abs(mine / theirs - 1) < _ALIKE:
        return None
    return (
        f"A step gives {mine:.2f} tokens here and {theirs:.2f} in the claim, "
        f"{percent(abs(mine / theirs - 1))} {'more' if mine > theirs else 'fewer'}: "
        "the difference is acceptance too."
    )


def _apart(name: str, theirs: object, mine: object) -> list[str]:
    if theirs is None:
        return [f"{name}: unknown in the claim"]
    if mine is None:
        return [f"{name}: {theirs} in the claim, unknown here"]
    return [] if theirs == mine else [f"{name}: {theirs} in the claim, {mine} here"]


def _unequal(theirs: Conditions, mine: Conditions) -> Iterator[str]:
    """What a claim states of its conditions and our samples are not known to share."""
    for name in Conditions.__struct_fields__:
        stated = getattr(theirs, name)
        if stated is not None and name not in _MEASURED:
            yield from _apart(_spoken(name), stated, getattr(mine, name))


def _spoken(name: str) -> str:
    return name.replace("_", " ")


def _only(values: set[T]) -> T | None:
    return next(iter(values)) if len(values) == 1 else None


def _quantisation(engine: Engine | None) -> str | None:
    """The engine's ``--quantization``, else its ``--dtype``; ``None`` where it is told neither."""
    flags = engine.subject.get("flags") if engine is not None else None
    if not isinstance(flags, dict):
        return None
    found = flags.get("--quantization") or flags.get("--dtype")
    return None if found is None else str(found)
