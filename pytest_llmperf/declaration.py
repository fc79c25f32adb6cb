"""What a test's markers declare, as frozen records, checked before anything costs.

Each marker by itself is in ``markers``. Reading markers off pytest's items is in ``plugin``;
turning a plan into requests is in ``plan``.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from pytest_llmperf.denominator import BUILT_IN, FAILOVER, Denominator, Prefix
from pytest_llmperf.markers import (
    MARKERS,
    WINDOWS,
    AggregateThroughput,
    Burst,
    Factor,
    Factorial,
    Failover,
    General,
    Ladder,
    Load,
    Plan,
    SpeedUp,
    keywords,
    load_problems,
)


class Declaration(msgspec.Struct, frozen=True, kw_only=True):
    """What one test declares: its denominator, its plan, and the ratio if it states one."""

    denominator: Denominator
    plan: Plan
    speedup: Denominator | None = None
    """The denominator of the ratio; ``None`` where the test compares nothing."""
    factor: Factor | None = None
    factors: tuple[Factor, ...] = ()
    """The two factors of a factorial; none where there is none."""

    @property
    def arms(self) -> int:
        """How many arms are measured: one, two that are compared, or four cells."""
        return 4 if self.factors else 1 if self.factor is None else 2

    @property
    def windows(self) -> int | None:
        """Windows of load into which the turns are divided; ``None``: one turn after another."""
        if isinstance(self.plan, Burst):
            return 1
        if isinstance(self.plan, Load) and self.plan.is_load:
            return self.plan.windows or WINDOWS
        return None

    @property
    def min_cached_share(self) -> float | None:
        """The stated share of cached tokens, where expected hits can't be computed."""
        share: float | None = getattr(self.plan, "min_cached_share", None)
        return share


def signature(name: str) -> str:
    """One marker with its keywords and defaults, as ``pytest --markers`` prints it."""
    taken = sorted(keywords(MARKERS[name]).items(), key=lambda each: not each[1].required)
    words = (key if field.required else f"{key}={field.default!r}" for key, field in taken)
    return f"{name}({', '.join(words)}): {_summary(MARKERS[name])}"


def declare(
    markers: Sequence[tuple[str, tuple[Any, ...], Mapping[str, Any]]],
) -> tuple[Declaration | None, list[str]]:
    """Read one test's markers: name, positional arguments, keywords, nearest first.

    :returns: the declaration, or ``None``; and every problem found, each one line.
    """
    problems: list[str] = []
    records = {}
    for name, arguments, stated in markers:
        if name in records:
            continue
        record, found = _record(name, arguments, stated)
        problems += found
        if record is not None:
            records[name] = record
    if "speedup" in records and len(records) > 1:
        problems += _stated_twice(next(said for name, _, said in markers if name == "speedup"))
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
    name: str, arguments: tuple[Any, ...], stated: Mapping[str, Any]
) -> tuple[Plan | None, list[str]]:
    kind = MARKERS[name]
    problems = []
    if arguments:
        problems.append(f"{name}{arguments!r}: takes keywords only. Write {signature(name)}")
    fields = keywords(kind)
    problems += [_unknown(name, key, fields) for key in stated if key not in fields]
    problems += [
        f"{name}: {key} is missing. Write {signature(name)}"
        for key, field in fields.items()
        if field.required and key not in stated
    ]
    for key, value in stated.items():
        if key in fields:
            problems += _wrong_value(name, key, value, fields[key].type)
    if problems:
        return None, problems
    made = kind(**{fields[key].name: value for key, value in stated.items()})
    problems = [f"{name}: {found}" for found in load_problems(made)]
    return (None, problems) if problems else (made, [])


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


def _stated_twice(stated: Mapping[str, Any]) -> list[str]:
    """A speed-up beside a denominator marker takes its plan from there, and says none itself."""
    return [
        f"speedup: {key} is stated beside another marker, whose plan holds for both. Move it there."
        for key in stated
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
    if isinstance(ratio, SpeedUp) and named != ["factorial"]:
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
    if isinstance(plan, Factorial):
        problems = _factorial_problems(plan, ratio)
        return (None, problems) if problems else (_crossed(plan), [])
    return Declaration(denominator=_denominator(named[0], plan), plan=plan), []


def _compared(denominator: Denominator, plan: Plan, of: Denominator, factor: Factor) -> Declaration:
    if factor == "prefix":
        denominator = msgspec.structs.replace(denominator, prefix="warm")
    of = msgspec.structs.replace(
        of,
        prefix=denominator.prefix,
        streams=denominator.streams,
        arrival=denominator.arrival,
        rate_rps=denominator.rate_rps,
        ramp_s=denominator.ramp_s,
    )
    return Declaration(denominator=denominator, plan=plan, speedup=of, factor=factor)


def _crossed(plan: Factorial) -> Declaration:
    of = msgspec.structs.replace(BUILT_IN[plan.of], prefix="warm")
    return Declaration(denominator=of, plan=plan, factors=plan.factors)


def _denominator(name: str, plan: Plan) -> Denominator:
    if isinstance(plan, Ladder):
        return msgspec.structs.replace(BUILT_IN["aggregate_throughput"], prefix=plan.prefix)
    if isinstance(plan, Failover):
        return msgspec.structs.replace(FAILOVER, streams=plan.streams)
    if isinstance(plan, General):
        found = Denominator(name=name, clock=plan.clock, unit=plan.unit, prefix=plan.prefix)
    else:
        prefix: Prefix = getattr(plan, "prefix", BUILT_IN[name].prefix)
        found = msgspec.structs.replace(BUILT_IN[name], prefix=prefix)
    if isinstance(plan, Burst):
        return msgspec.structs.replace(found, streams=plan.turns)
    if isinstance(plan, Load):
        found = _loaded(found, plan)
    return _called(found) if isinstance(plan, General) else found


def _called(found: Denominator) -> Denominator:
    """A stated combination under the name that it has anyway, else under its clock and unit."""
    same = (each.name for each in BUILT_IN.values() if not found.differences(each))
    stated = f"{found.clock} clock per {found.unit}".replace("_", " ")
    return msgspec.structs.replace(found, name=next(same, stated))


def _loaded(found: Denominator, plan: Load) -> Denominator:
    return msgspec.structs.replace(
        found,
        streams=(plan.streams or 1) if plan.arrival == "closed" else None,
        arrival=plan.arrival,
        rate_rps=None if plan.rate_rps is None else float(plan.rate_rps),
        ramp_s=None if plan.ramp_s is None else float(plan.ramp_s),
    )


def rung_of(declaration: Declaration, plan: Ladder, streams: int) -> Declaration:
    """Declare one rung of a ladder: an aggregate throughput of so many streams, in one window."""
    rung = AggregateThroughput(
        turns=plan.turns * streams,
        streams=streams,
        windows=1,
        warmup=plan.warmup,
        tolerance=plan.tolerance,
        detect=plan.detect,
        min_acceptance=plan.min_acceptance,
        prefix=plan.prefix,
        min_cached_share=plan.min_cached_share,
    )
    denominator = msgspec.structs.replace(declaration.denominator, streams=streams)
    return Declaration(denominator=denominator, plan=rung)


def _ratio_problems(ratio: SpeedUp, plan: Plan) -> list[str]:
    if isinstance(plan, Failover):
        return ["failover and speedup: a switch from one server to the next has no ratio."]
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


def _factorial_problems(plan: Factorial, ratio: Plan | None) -> list[str]:
    problems = []
    if ratio is not None:
        problems.append(
            "factorial and speedup: each factor's gain is an effect of the factorial: keep that."
        )
    if plan.factors[1] != "prefix" or plan.factors[0] == "prefix":
        problems.append(
            f"factorial: factors={plan.factors!r}: the first is of two engines ('speculation' or "
            "'profile'), the second is 'prefix', which each of them can do both ways."
        )
    if plan.turns < _FEWEST_COMPARED:
        problems.append(
            f"factorial: turns={plan.turns}: an effect needs two blocks of two turns in each cell "
            f"before any test can reject anything. Plan at least {_FEWEST_COMPARED}."
        )
    return problems


_FEWEST_COMPARED = 4
"""Two ABBA blocks: with one there is no spread, and no test could ever say REGRESS."""
