"""Decisions of people about a history: accepted regressions, anchors, retired gates, each with why.

They are appended to one file and never changed; what they do to sessions is in ``past``.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

from pytest_llmperf.errors import EvidenceError, UsageError
from pytest_llmperf.history.layout import DECISIONS, SCHEMA


class Decision(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One line of ``decisions.jsonl``."""

    schema: int = SCHEMA
    kind: Literal["accept", "anchor", "retire"]
    gate: str
    reason: str
    who: str
    when: str
    """UTC, ISO 8601."""
    label: str | None = None
    """An anchor's name, such as a release."""
    sessions: tuple[str, ...] = ()
    """The sessions that are accepted, or that are the anchor."""


def append(root: Path, decision: Decision) -> None:
    """Add a decision, after whatever other processes add at the same time.

    :raises UsageError: it says no reason or nobody.
    :raises EvidenceError: the disk refuses it.
    """
    _check_said(decision)
    line = msgspec.json.encode(decision) + b"\n"
    try:
        root.mkdir(parents=True, exist_ok=True)
        with (root / DECISIONS).open("ab+", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write((b"" if _ends_whole(file.fileno()) else b"\n") + line)
            os.fsync(file.fileno())
    except OSError as error:
        raise EvidenceError(
            f"The decision about {decision.gate} could not be kept in {root / DECISIONS}.",
            f"The system says: {error.strerror or error}.",
            "Nothing was decided; give write access or make room, and decide again.",
        ) from error


def _check_said(decision: Decision) -> None:
    for name, text in (("reason", decision.reason), ("who", decision.who)):
        if not text.strip():
            raise UsageError(
                f"The decision to {decision.kind} {decision.gate} gives no {name}.",
                f"{name} is {text!r}.",
                "Say why and who; both are kept with the decision.",
            )


def _ends_whole(descriptor: int) -> bool:
    """Whether the file is empty or ends with a whole line; a crash may have cut its last one."""
    size = os.fstat(descriptor).st_size
    return size == 0 or os.pread(descriptor, 1, size - 1) == b"\n"


def read(root: Path) -> tuple[tuple[Decision, ...], tuple[str, ...]]:
    """All decisions in their order, and what of the file could not be read, in words."""
    path = root / DECISIONS
    if not path.exists():
        return (), ()
    found: list[Decision] = []
    problems: list[str] = []
    for number, line in _lines(path):
        try:
            decision = msgspec.json.decode(line, type=Decision)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            problems.append(f"{path}, line {number}, is no decision: {error}")
            continue
        if decision.schema == SCHEMA:
            found.append(decision)
        else:
            problems.append(f"{path}, line {number}, is of schema {decision.schema}, not {SCHEMA}")
    return tuple(found), tuple(problems)


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    for number, line in enumerate(path.read_bytes().split(b"\n"), start=1):
        if line.strip():
            yield number, line
