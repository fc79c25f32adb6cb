"""A published claim: a number with the denominator it was counted over, out of a TOML file.

What it leaves out is unknown, and unknown never equals known. Holding it against our samples is in
the package's own module.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec

from pytest_llmperf.denominator import CLOCKS, PREFIXES, Clock, Denominator, Prefix, Unit
from pytest_llmperf.errors import UsageError
from pytest_llmperf.markers import FACTORS, Factor
from pytest_llmperf.units import real

ClaimUnit = Literal["x", "tok/s", "s"]

_COUNTED_UNIT: dict[ClaimUnit, Unit] = {"tok/s": "output_token", "s": "request"}
"""What a claim's own unit says of the denominator's; a ratio leaves it open."""


class Counted(msgspec.Struct, frozen=True, kw_only=True):
    """What a claim is counted over; ``None`` is unknown."""

    clock: Clock | None = None
    unit: Unit | None = None
    prefix: Prefix | None = None
    streams: int | None = None
    factor: Factor | None = None
    """With a ratio: the one thing in which its two sides differ."""


class Conditions(msgspec.Struct, frozen=True, kw_only=True):
    """Under which conditions it was measured; ``None`` is unknown."""

    content_class: str | None = None
    temperature: float | None = None
    draft_tokens: int | None = None
    acceptance_length: float | None = None
    """Mean tokens a verifying step, the bonus token included."""
    quantisation: str | None = None


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """A claim: at least so many times or tokens per second, or at most so many seconds."""

    name: str
    number: float
    unit: ClaimUnit
    says: str = ""
    source: str = ""
    denominator: Counted = Counted()
    conditions: Conditions = Conditions()

    @classmethod
    def read(cls, path: str | Path) -> Claim:
        """Read a claim's file.

        :raises UsageError: it is not there, is no TOML, or holds anything unknown or wrong; every
            fault is in the one message.
        """
        path = Path(path)
        try:
            table = tomllib.loads(path.read_text(encoding="utf-8-sig"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise UsageError(
                f"The claim {path} cannot be read.",
                str(error),
                "A claim is a TOML file in UTF-8, with number, unit and [denominator].",
            ) from error
        return cls.of(path.stem, table)

    @classmethod
    def of(cls, name: str, table: Mapping[str, Any]) -> Claim:
        """Make a claim of a TOML table.

        :raises UsageError: it holds anything unknown or wrong.
        """
        found = list(_faults(table, _TOP, "")) or list(_contradictions(table))
        if found:
            raise UsageError(
                f"The claim {name!r} has {len(found)} fault{'s' * (len(found) > 1)}.",
                "\n".join(f"- {each}" for each in found),
                "Correct the file; what a source does not say is left out, and is then unknown.",
            )
        return msgspec.convert({**table, "name": name}, cls)

    @property
    def counted_unit(self) -> Unit | None:
        """The unit of the number, or of the numbers that a ratio is of."""
        return self.denominator.unit or _COUNTED_UNIT.get(self.unit)

    @property
    def counted_by(self) -> Denominator | None:
        """Its denominator; ``None`` where it leaves a part of it out."""
        of = self.denominator
        unit = self.counted_unit
        if of.clock is None or unit is None or of.prefix is None or of.streams is None:
            return None
        return Denominator(
            name=self.name, clock=of.clock, unit=unit, prefix=of.prefix, streams=of.streams
        )


def why_not_ranked(first: Claim, second: Claim) -> list[str]:
    """Why two claims cannot be ranked: what differs, and what one of them does not say.

    Empty only where unit, denominator and conditions are all stated and all equal.
    """
    return [
        f"{name}: {_stated(one)} against {_stated(other)}"
        for (name, one), (_, other) in zip(_facts(first), _facts(second), strict=True)
        if one is None or one != other
    ]


def _facts(claim: Claim) -> Iterator[tuple[str, object]]:
    """All that must be equal before two claims are ranked."""
    yield "unit", claim.unit
    for name, value in msgspec.structs.asdict(claim.denominator).items():
        if name == "unit":
            yield "counted unit", claim.counted_unit
        elif name != "factor" or claim.unit == "x":
            yield name, value
        else:
            yield name, "none"  # only a ratio has one
    yield from msgspec.structs.asdict(claim.conditions).items()


def _stated(value: object) -> str:
    return "unknown" if value is None else str(value)


def _faults(table: Mapping[str, Any], known: Mapping[str, Any], where: str) -> Iterator[str]:
    for key, value in table.items():
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1, cutoff=0.6)
            guess = f"; did you mean {near[0]}?" if near else "."
            yield f"{where}{key} is not known{guess} Allowed here: {', '.join(known)}"
        elif not isinstance(known[key], Mapping):
            if not known[key][0](value):
                yield f"{where}{key} = {value!r} is not {known[key][1]}"
        elif isinstance(value, Mapping):
            yield from _faults(value, known[key], f"[{key}] ")
        else:
            yield f"{where}{key} = {value!r} is not a table"
    if not where:
        yield from (f"{key} is missing" for key in ("number", "unit") if key not in table)


def _contradictions(table: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong between keys that are each right by themselves."""
    stated, unit = table.get("denominator", {}), table["unit"]
    implied = _COUNTED_UNIT.get(unit)
    counted = stated.get("unit", implied)
    if implied is not None and counted != implied:
        yield f"[denominator] unit = {counted!r} does not fit unit = {unit!r}"
    if unit != "x" and "factor" in stated:
        yield f"[denominator] factor belongs to a ratio; unit is {unit!r}"
    if stated.get("clock") == "decode" and counted == "request":
        yield "[denominator] clock = 'decode' counts tokens; unit is 'request'"
    if stated.get("clock") == "first_token" and counted == "output_token":
        yield "[denominator] clock = 'first_token' counts no tokens; unit is 'output_token'"


_Check = tuple[Callable[[object], bool], str]


def _one_of(words: Mapping[Any, object] | tuple[Any, ...]) -> _Check:
    return (lambda value: isinstance(value, str) and value in words), f"one of {', '.join(words)}"


def _is_number(value: object, least: float, *, also: bool = False) -> bool:
    number = real(value)
    return number is not None and (number > least or (also and number == least))


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and _is_number(value, 1, also=True)


_TEXT: _Check = (lambda value: isinstance(value, str) and bool(value.strip()), "a text")
_POSITIVE: _Check = (lambda value: _is_number(value, 0), "a finite number above 0")
_FROM_ZERO: _Check = (lambda value: _is_number(value, 0, also=True), "a finite number from 0")
_FROM_ONE: _Check = (lambda value: _is_number(value, 1, also=True), "a finite number from 1")
_WHOLE: _Check = (_is_whole, "a whole number from 1")

_TOP: dict[str, Any] = {
    "number": _POSITIVE,
    "unit": _one_of(get_args(ClaimUnit)),
    "says": _TEXT,
    "source": _TEXT,
    "denominator": {
        "clock": _one_of(CLOCKS),
        "unit": _one_of(get_args(Unit)),
        "prefix": _one_of(PREFIXES),
        "streams": _WHOLE,
        "factor": _one_of(FACTORS),
    },
    "conditions": {
        "content_class": _TEXT,
        "temperature": _FROM_ZERO,
        "draft_tokens": _WHOLE,
        "acceptance_length": _FROM_ONE,
        "quantisation": _TEXT,
    },
}
