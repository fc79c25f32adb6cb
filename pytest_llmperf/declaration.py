"""What a test's markers declare, as frozen records, checked before anything costs.

The marker's keywords are the record's fields. Reading markers off pytest's items is in ``plugin``;
turning a plan into requests is in ``plan``.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from pytest_llmperf.denominator import BUILT_IN, Clock, Denominator, Prefix, Unit

Turns = Annotated[int, Meta(ge=1, le=100_000)]
Share = Annotated[float, Meta(gt=0, le=1)]
Change = Annotated[float, Meta(gt=0, lt=10)]
Factor = Literal["prefix", "speculation", "profile"]

FACTORS: dict[Factor, str] = {
    "prefix": "a cached prefix against a cold one, on one engine",
    "speculation": "with the drafter against without, on two engines",
    "profile": "one configuration against another, on two engines",
}
"""The one thing in which the arms of a speed-up may differ, in words."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What every denominator marker may say: how much is measured, and what must be seen."""

    turns: Turns = 30
    """Requests measured for each arm, warm-up excluded."""
    warmup: Annotated[int, Meta(ge=0, le=1000)] = 2
    """Requests sent and recorded before, for each arm, and not used."""
    tolerance: Change | None = None
    """A slow-down up to this share is no regression; ``None``: the profile's."""
    detect: Change | None = None
    """A slow-down of this share must be seen; ``None``: the profile's."""
    min_acceptance: Share = 0.15
    """Accepted over drafted tokens below which a declared drafter counts as mismatched."""


class SingleStream(Plan, frozen=True, kw_only=True):
    """Wall-clock latency of one request, as its caller sees it; cold, proven."""


class TimeToFirstToken(Plan, frozen=True, kw_only=True):
    """The wait before anything appears, with the prefix cold or warm as declared."""

    prefix: Prefix = "cold"
    min_cached_share: Share | None = None


class DecodeThroughput(Plan, frozen=True, kw_only=True):
    """Output tokens per second once decoding, prefill removed."""

    prefix: Prefix = "any"
    min_cached_share: Share | None = None


class CachedTurn(Plan, frozen=True, kw_only=True):
    """Wall clock of the next turn of a live conversation; warm, proven."""

    streams: Literal[1] = 1
    min_cached_share: Share | None = None


class General(Plan, frozen=True, kw_only=True):
    """Your own combination of clock, unit of work, cache state and streams."""

    clock: Clock
    unit: Unit = "request"
    prefix: Prefix = "any"
    streams: Literal[1] = 1
    min_cached_share: Share | None = None


class SpeedUp(Plan, frozen=True, kw_only=True):
    """The ratio of one denominator under two arms that differ in one declared factor."""

    of: Literal["single_stream", "time_to_first_token", "decode_throughput", "cached_turn"]
    factor: Factor
    min_cached_share: Share | None = None


MARKERS: dict[str, type[Plan]] = {
    "single_stream": SingleStream,
    "time_to_first_token": TimeToFirstToken,
    "decode_throughput": DecodeThroughput,
    "cached_turn": CachedTurn,
    "speedup": SpeedUp,
    "denominator": General,
}
"""Every marker of this plugin and the record of its keywords."""


class Declaration(msgspec.Struct, frozen=True, kw_only=True):
    """What one test declares: its denominator, its plan, and the ratio if it states one."""

    denominator: Denominator
    plan: Plan
    speedup: Denominator | None = None
    """The denominator of the ratio; ``None`` where the test compares nothing."""
    factor: Factor | None = None

    @property
    def min_cached_share(self) -> float | None:
        """The stated share of cached tokens, where expected hits can't be computed."""
        share: float | None = getattr(self.plan, "min_cached_share", None)
        return share


def signature(name: str) -> str:
    """One marker with its keywords and defaults, as ``pytest --markers`` prints it."""
    fields = msgspec.structs.fields(MARKERS[name])
    ordered = sorted(fields, key=lambda field: not field.required)
    keywords = (
        field.name if field.required else f"{field.name}={field.default!r}" for field in ordered
    )
    return f"{name}({', '.join(keywords)}): {_summary(MARKERS[name])}"


def declare(
    markers: Sequence[tuple[str, tuple[Any, ...], Mapping[str, Any]]],
) -> tuple[Declaration | None, list[str]]:
    """Read one test's markers: name, positional arguments, keywords, nearest first.

    :returns: the declaration, or ``None``; and every problem found, each one line.
    """
    problems: list[str] = []
    records = {}
    for name, arguments, keywords in markers:
        if name in records:
            continue
        record, found = _record(name, arguments, keywords)
        problems += found
        if record is not None:
            records[name] = record
    if "speedup" in records and len(records) > 1:
        stated = next(keywords for name, _, keywords in markers if name == "speedup")
        problems += _stated_twice(stated)
    if problems:
        return None, problems
    return _together(records)


def near_miss(name: str, known: Iterable[str] = MARKERS) -> str | None:
    """The marker of ours that an unknown one was probably meant to be, or ``None``."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.75)
    return close[0] if close else None


def _summary(record: type[Plan]) -> str:
    return (record.__doc__ or "").strip().splitlines()[0]


def _record(
    name: str, arguments: tuple[Any, ...], keywords: Mapping[str, Any]
) -> tuple[Plan | None, list[str]]:
    kind = MARKERS[name]
    problems = []
    if arguments:
        problems.append(f"{name}{arguments!r}: takes keywords only. Write {signature(name)}")
    fields = {field.name: field for field in msgspec.structs.fields(kind)}
    problems += [_unknown(name, key, fields) for key in keywords if key not in fields]
    problems += [
        f"{name}: {field.name} is missing. Write {signature(name)}"
        for field in fields.values()
        if field.required and field.name not in keywords
    ]
    for key, value in keywords.items():
        if key in fields:
            problems += _wrong_value(name, key, value, fields[key].type)
    return (None, problems) if problems else (kind(**keywords), [])


def _unknown(name: str, key: str, fields: Mapping[str, Any]) -> str:
    near = near_miss(key, fields)
    hint = f" Did you mean {near}?" if near else ""
    return f"{name}: {key} is not a keyword of this marker.{hint} It takes {', '.join(fields)}."


def _wrong_value(name: str, key: str, value: object, wanted: Any) -> list[str]:  # noqa: ANN401 - a type of any shape
    if isinstance(value, bool):
        return [f"{name}: {key}={value!r}: a number or a word is wanted, not a truth value."]
    try:
        msgspec.convert(value, type=wanted, strict=True)
    except msgspec.ValidationError as error:
        allowed = _allowed(wanted)
        return [f"{name}: {key}={value!r}: {error}.{allowed}"]
    return []


def _allowed(wanted: Any) -> str:  # noqa: ANN401 - a type of any shape
    choices = getattr(wanted, "__args__", ())
    if choices and all(isinstance(choice, str) for choice in choices):
        return f" Choose one of {', '.join(choices)}."
    return ""


def _stated_twice(keywords: Mapping[str, Any]) -> list[str]:
    """A speed-up beside a denominator marker takes its plan from there, and says none itself."""
    return [
        f"speedup: {key} is stated beside another marker, whose plan holds for both. Move it there."
        for key in keywords
        if key not in {"of", "factor"}
    ]


def _together(records: Mapping[str, Plan]) -> tuple[Declaration | None, list[str]]:
    """Combine at most one denominator marker and at most one speed-up."""
    ratio = records.get("speedup")
    named = [name for name in records if name != "speedup"]
    if len(named) > 1:
        both = " and ".join(sorted(named))
        why = "Keep one of them; the same samples are shown under the others anyway."
        return None, [f"{both}: one test has one denominator. {why}"]
    if isinstance(ratio, SpeedUp):
        problems = _ratio_problems(ratio, records[named[0]] if named else ratio)
        if problems:
            return None, problems
        plan = records[named[0]] if named else ratio
        of = BUILT_IN[ratio.of]
        denominator = _denominator(named[0], plan) if named else of
        return _compared(denominator, plan, of, ratio.factor), []
    if not named:
        return None, []
    plan = records[named[0]]
    return Declaration(denominator=_denominator(named[0], plan), plan=plan), []


def _compared(denominator: Denominator, plan: Plan, of: Denominator, factor: Factor) -> Declaration:
    if factor == "prefix":
        denominator = msgspec.structs.replace(denominator, prefix="warm")
    of = msgspec.structs.replace(of, prefix=denominator.prefix)
    return Declaration(denominator=denominator, plan=plan, speedup=of, factor=factor)


def _denominator(name: str, plan: Plan) -> Denominator:
    if isinstance(plan, General):
        return Denominator(
            name=name, clock=plan.clock, unit=plan.unit, prefix=plan.prefix, streams=plan.streams
        )
    prefix: Prefix | None = getattr(plan, "prefix", None)
    built_in = BUILT_IN[name]
    return msgspec.structs.replace(built_in, prefix=prefix) if prefix else built_in


def _ratio_problems(ratio: SpeedUp, plan: Plan) -> list[str]:
    problems = []
    if ratio.factor == "prefix" and BUILT_IN[ratio.of].clock != "first_token":
        problems.append(
            f"speedup: of={ratio.of!r} with factor='prefix': a cached prefix saves prefill and "
            "nothing else, so its ratio is gated on of='time_to_first_token'; the whole-turn "
            "ratio of the same samples is shown beside it."
        )
    if plan.turns < _FEWEST_COMPARED:
        problems.append(
            f"speedup: turns={plan.turns}: a ratio needs two blocks of two turns on each arm "
            f"before any test can reject anything. Plan at least {_FEWEST_COMPARED}."
        )
    return problems


_FEWEST_COMPARED = 4
"""Two ABBA blocks: with one there is no spread, and no test could ever say REGRESS."""
