"""Files of requests that once came in: what one line holds, and what is wrong with it, unquoted.

What each kind of file means is in the modules named after them.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from pytest_llmperf.errors import UsageError
from pytest_llmperf.planned import PlannedRequest
from pytest_llmperf.units import counted

NEXT = "Nothing was booted. Correct or drop what is named; its words are not shown on purpose."


class Came(msgspec.Struct, frozen=True, kw_only=True):
    """One request and when it came, in seconds of the file's own clock."""

    request: PlannedRequest
    at_s: float | None = None
    clock: str = ""
    """How its time is written: times written otherwise are not of one clock."""


class Wrong(Exception):
    """What is wrong with one line, in words that quote nothing of it."""


def read_lines(path: Path, make: Callable[[Mapping[str, Any]], Came]) -> list[Came]:
    """Make a request of every line of a file of one JSON object a line.

    :raises UsageError: a line is wrong; all of them in one message.
    """
    found: list[Came] = []
    wrong: list[str] = []
    untimed: list[int] = []
    clocks: dict[str, int] = {}
    for number, line in enumerate(read_bytes(path).split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            found.append(make(_object(line)))
        except Wrong as error:
            wrong.append(f"{path}:{number}: {error}")
            continue
        if found[-1].at_s is None:
            untimed.append(number)
        elif clocks.setdefault(found[-1].clock, number) == number and len(clocks) > 1:
            first, line_of = next(iter(clocks.items()))
            wrong.append(
                f"{path}:{number}: timestamp is {found[-1].clock}, in line {line_of} it is {first}"
            )
    if 0 < len(untimed) < len(found):
        why = "no timestamp, which other lines have"
        wrong += [f"{path}:{each}: {why}" for each in untimed]
    refuse(path, wrong)
    return found


def refuse(path: Path, wrong: Sequence[str], *, what: str = "line") -> None:
    """:raises UsageError: anything is wrong."""
    if wrong:
        count = counted(len(wrong), what)
        raise UsageError(f"{path} has {count} that cannot be sent.", "\n".join(wrong), NEXT)


def read_bytes(path: Path) -> bytes:
    """Everything in a file, but for a mark of its byte order.

    :raises UsageError: it cannot be read.
    """
    try:
        return path.read_bytes().removeprefix(codecs.BOM_UTF8)
    except OSError as error:
        raise UsageError(
            f"The traffic in {path} cannot be read.",
            f"{type(error).__name__}: {error.strerror}.",
            "Nothing was booted. Name a file that is there.",
        ) from error


def _object(line: bytes) -> Mapping[str, Any]:
    try:
        found = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Wrong("no JSON in UTF-8") from None
    if not isinstance(found, dict):
        raise Wrong(f"a JSON {kind(found)}, not an object")
    return found


def kind(value: object) -> str:
    """What a JSON value is, in a word."""
    if value is None:
        return "null"
    names = {bool: "truth value", str: "text", int: "number", float: "number", list: "list"}
    return names.get(type(value), "object")


def whole(line: Mapping[str, Any], field: str, least: int | None) -> int | None:
    """A whole number from ``least``; without a least one it may be missing.

    :raises Wrong: it is none.
    """
    value = line.get(field)
    if value is None and least is None:
        return None
    fine = isinstance(value, int) and not isinstance(value, bool)
    if not fine or (least is not None and value < least):  # type: ignore[operator]
        floor = "" if least is None else f" from {least}"
        raise Wrong(f"{field} is not a whole number{floor}")
    return value
