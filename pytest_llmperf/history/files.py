"""One file of a history folder as rows of the index; a file that is wrong is a row that says so.

Where files lie is in ``layout``, what is computed of evidence in ``derive``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from pytest_llmperf.benchmark_files import (
    DENOMINATOR_ID,
    OldSession,
    place_of_benchmarks,
    subject_of_benchmarks,
)
from pytest_llmperf.errors import LlmperfError
from pytest_llmperf.evidence import read
from pytest_llmperf.history import layout
from pytest_llmperf.history.derive import DERIVATION, Boot, Derived, Series, derive, unix_seconds
from pytest_llmperf.history.layout import Judged
from pytest_llmperf.history.rows import FileRow, SeriesRow


class Imported(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Numbers of another tool, kept as a session."""

    schema: int = layout.SCHEMA
    session_id: str
    started_at: str
    source: str
    series: tuple[Series, ...]


def imported(old: OldSession, machine: Mapping[str, Any]) -> Imported:
    """An old result file as a session: one number a test, without boots."""
    return Imported(
        session_id=old.session_id,
        started_at=old.started_at,
        source=old.source,
        series=tuple(_one_number(old, test, machine) for test in old.medians_s),
    )


def _one_number(old: OldSession, test: str, machine: Mapping[str, Any]) -> Series:
    boot = Boot(boot_id=old.source, turns=1, logs={"p50": math.log(old.medians_s[test])})
    return Series(
        gate=test,
        denominator_id=DENOMINATOR_ID,
        place=place_of_benchmarks(machine),
        subject=subject_of_benchmarks(test),
        boots=(boot,),
        replicated=False,
    )


def indexed(root: Path, path: str, stamp: str) -> tuple[FileRow, list[SeriesRow]]:
    """Read one file; whatever is wrong with it is said in its row and hides no other file."""
    try:
        return _read(root / path, path, stamp)
    except LlmperfError as error:
        problem = f"{error.what} {error.evidence}"
    except Exception as error:  # noqa: BLE001 - one odd file must not hide the others
        problem = f"It cannot be understood: {type(error).__name__}: {error}."
    return FileRow(path=path, stamp=stamp, derivation=DERIVATION, problem=problem), []


def mark(stamp: str) -> tuple[str, str]:
    """What the index holds of a file that has not changed since."""
    return stamp, DERIVATION


def _read(file: Path, path: str, stamp: str) -> tuple[FileRow, list[SeriesRow]]:
    verdicts = None
    if file.name == layout.IMPORTED:
        found = _as_derived(layout.decoded(file, Imported))
    else:
        verdicts = layout.read_verdicts(file)
        found = derive(read(file))
    judged = {} if verdicts is None else verdicts.gates
    row = FileRow(
        path=path,
        stamp=stamp,
        derivation=DERIVATION,
        content=layout.content_digest(file),
        session_id=found.session_id,
        started=found.started,
        started_at=found.started_at,
        profile=found.profile,
        is_judged=verdicts is not None,
    )
    return row, [_row(path, found, each, judged.get(each.gate)) for each in found.series]


def _as_derived(kept: Imported) -> Derived:
    return Derived(
        session_id=kept.session_id,
        started_at=kept.started_at,
        started=unix_seconds(kept.started_at),
        series=kept.series,
    )


def _row(path: str, found: Derived, series: Series, judged: Judged | None) -> SeriesRow:
    return SeriesRow(
        path=path,
        gate=series.gate,
        call=series.call,
        name=series.name,
        denominator_id=series.denominator_id,
        place=series.place,
        subject=series.subject,
        started=found.started,
        judged=judged,
        problem=series.problem,
        is_replicated=series.replicated,
        boots=series.boots,
    )
