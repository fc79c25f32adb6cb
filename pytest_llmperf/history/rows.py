"""What the index holds, a row each: files, the series in them, and what they say of gates.

How rows are kept and found is in ``index``; how they come to be, in ``files``.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from pytest_llmperf.history.derive import Boot, SeriesName
from pytest_llmperf.history.layout import Judged
from pytest_llmperf.identity import Half


class FileRow(msgspec.Struct, frozen=True, kw_only=True):
    """One file of evidence or import as the index knows it."""

    path: str
    stamp: str
    derivation: str
    content: str | None = None
    session_id: str | None = None
    started: float | None = None
    started_at: str | None = None
    profile: str | None = None
    problem: str | None = None
    is_judged: bool = False


class SeriesRow(msgspec.Struct, frozen=True, kw_only=True):
    """One series of one file, with what its file says of the session."""

    path: str
    gate: str
    call: int
    name: SeriesName
    denominator_id: str
    place: Half
    subject: Half
    started: float
    judged: Judged | None
    problem: str | None
    is_replicated: bool
    boots: tuple[Boot, ...]
    session_id: str = ""
    started_at: str = ""
    profile: str | None = None
    is_judged: bool = False


class GateRow(NamedTuple):
    """What one session says of one gate."""

    gate: str
    session_id: str
    started: float
    judged: Judged | None
    problem: str | None
