"""A change in parts: of a product by the logs of its factors, of a sum by its terms.

What the parts are measured from is in ``terms``; nothing here says whether anything moved at all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from pytest_llmperf.attribution.terms import Terms
from pytest_llmperf.units import quantity

HARDLY = 0.02
"""A relative change below this is said to be hardly one."""

MOSTLY = 0.8
"""A part with at least this share of a change is what changed."""

LENGTH_TOLERANCE = 0.02
"""Answers that differ by more tokens make times of whole turns not comparable."""

WALL = "wall clock"
DECODE = "decode throughput"
FIRST_TOKEN = "time to first token"  # noqa: S105 - no password
RATIO = "ratio"
ACCEPTANCE = "acceptance length"
STEP = "step time"

_EQUAL = 1e-12


class Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One part of a change."""

    of: str
    """The number that changed."""
    name: str
    share: float | None
    """Of the change; the shares of one number add up to 1. ``None`` where nothing changed."""
    text: str


class Moved(msgspec.Struct, frozen=True):
    """A factor of a number: the logs of its two values, and the power with which it enters."""

    name: str
    then: float
    now: float
    power: int
    unit: str


class Split(msgspec.Struct, frozen=True, kw_only=True):
    """One number's change, split; or what the evidence lacks to split it."""

    headline: str = ""
    parts: tuple[Part, ...] = ()
    lacking: str = ""


def split(of: str, moved: tuple[float, float, str], factors: Sequence[Moved]) -> Split:
    """Split the change of a product by the logs of its factors."""
    then, now, unit = moved
    total = math.log(now / then)
    own = [each.power * (each.now - each.then) for each in factors]
    shares = [None if abs(total) <= _EQUAL else each / total for each in own]
    parts = tuple(
        Part(
            of=of,
            name=each.name,
            share=share,
            text=_part_text(each.name, math.exp(each.then), math.exp(each.now), each.unit, share),
        )
        for each, share in zip(factors, shares, strict=True)
    )
    return Split(headline=_headline(of, then, now, unit, parts), parts=parts)


def split_decode(now: Terms, then: Terms) -> Split:
    """Decode throughput as acceptance length over step time."""
    values = (then.decode_rate, now.decode_rate, then.acceptance_length, now.acceptance_length)
    if any(each is None for each in values):
        return Split(lacking=_decode_lacks(now, then))
    rate_then, rate, length_then, length = (each or math.nan for each in values)
    return split(
        DECODE,
        (rate_then, rate, "tok/s"),
        [
            Moved(ACCEPTANCE, math.log(length_then), math.log(length), 1, "tokens"),
            Moved(STEP, math.log(length_then / rate_then), math.log(length / rate), -1, "s"),
        ],
    )


def _decode_lacks(now: Terms, then: Terms) -> str:
    lacks = [
        f"{what} {when}"
        for when, each in (("then", then), ("now", now))
        for what, value in (
            (DECODE, each.decode_rate),
            (ACCEPTANCE, each.acceptance_length),
        )
        if value is None
    ]
    return f"{DECODE} is not split: the evidence lacks {', '.join(lacks)}"


def split_wall(now: Terms, then: Terms) -> Split:
    """Wall clock is a sum: the shares are of seconds."""
    values = (then.wall_s, now.wall_s, then.first_token_s, now.first_token_s)
    if any(each is None for each in values):
        return Split(lacking=f"{WALL} is not split: the evidence lacks stamps of whole turns")
    wall_then, wall, first_then, first = (each or 0.0 for each in values)
    total = wall - wall_then
    rows = (
        (FIRST_TOKEN, first_then, first),
        ("decode", wall_then - first_then, wall - first),
    )
    parts = []
    for name, before, after in rows:
        share = None if abs(total) <= _EQUAL else (after - before) / total
        text = _part_text(name, before, after, "s", share)
        text += cached_text(now, then) if name == FIRST_TOKEN else ""
        parts.append(Part(of=WALL, name=name, share=share, text=text))
    headline = _headline(WALL, wall_then, wall, "s", tuple(parts))
    return Split(headline=headline, parts=tuple(parts))


def unequal_lengths(now: Terms, then: Terms) -> tuple[str, ...]:
    """That answers are not equally long, which whole-turn times depend on."""
    if not now.output_tokens or not then.output_tokens:
        return ()
    change = now.output_tokens / then.output_tokens - 1
    if abs(change) <= LENGTH_TOLERANCE:
        return ()
    text = (
        f"answers changed in length by {_percent(change)} ({then.output_tokens:,.1f} to "
        f"{now.output_tokens:,.1f} tokens a turn): times of whole turns are not comparable, "
        f"{DECODE} is"
    )
    return (text,)


def _headline(of: str, then: float, now: float, unit: str, parts: tuple[Part, ...]) -> str:
    blamed = _blamed(parts) if abs(now / then - 1) >= HARDLY else ""
    return moved_text(of, then, now, unit) + (f": {blamed}" if blamed else "")


def _blamed(parts: Sequence[Part]) -> str:
    """The part that changed, in words; nothing where none did."""
    if any(part.share is None for part in parts):
        return ""
    ordered = sorted(parts, key=lambda part: -(part.share or 0.0))
    most, least = ordered[0], ordered[-1]
    if (most.share or 0.0) < MOSTLY:
        return f"both {most.name} and {least.name}"
    if (least.share or 0.0) < MOSTLY - 1:
        return f"{most.name}, while {least.name} went the other way"
    return f"{most.name}, not {least.name}"


def _part_text(name: str, then: float, now: float, unit: str, share: float | None) -> str:
    text = moved_text(name, then, now, unit)
    return text if share is None else f"{text}: {round(100 * share) + 0} % of the change"


def moved_text(name: str, then: float, now: float, unit: str) -> str:
    """A change in words: ``step time rose from 20.0 ms to 25.0 ms (+25.0 %)``."""
    if then <= 0 or now <= 0:
        return f"{name} went from {quantity(then, unit)} to {quantity(now, unit)}"
    change = now / then - 1
    verb = "hardly moved" if abs(change) < HARDLY else "rose" if change > 0 else "fell"
    return (
        f"{name} {verb} from {quantity(then, unit)} to {quantity(now, unit)} ({_percent(change)})"
    )


def cached_text(now: Terms, then: Terms) -> str:
    """How many prompt tokens came out of the cache, where that changed; else nothing."""
    if now.cached_tokens is None or then.cached_tokens is None:
        return ""
    if abs(now.cached_tokens - then.cached_tokens) <= HARDLY * max(then.cached_tokens, 1.0):
        return ""
    return f"; cached tokens a turn went from {then.cached_tokens:,.0f} to {now.cached_tokens:,.0f}"


def _percent(change: float) -> str:
    return f"{100 * change:+.1f} %"
