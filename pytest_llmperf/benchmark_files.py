"""Old result files of pytest-benchmark, read as sessions of one number a test.

Such a number has no boots behind it. Keeping them beside our own sessions is in ``history``; the
exchange with pytest-benchmark in a run is in ``plugin``.
"""

from __future__ import annotations

import hashlib
import math
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from pytest_llmperf import place
from pytest_llmperf.errors import EvidenceError
from pytest_llmperf.identity import Half, machine_facts

DENOMINATOR_ID = "pytest-benchmark: median over rounds of one call's duration in seconds"
"""What these numbers are counted over: none of our denominators, so compared with none of them."""

_MACHINE = ("node", "system", "release", "machine", "processor", "python_version")
_CPU = ("brand_raw", "count")


class OldSession(msgspec.Struct, frozen=True, kw_only=True):
    """One file's numbers."""

    session_id: str
    """From the file's content, so that a copy of it is the same session."""
    started_at: str
    source: str
    """The file's name."""
    medians_s: dict[str, float]
    """By full name of the test."""
    refused: dict[str, str]
    """Tests whose number is none, with why; they are errors, not zeros."""


class _Stats(msgspec.Struct):
    median: float | None = None


class _Row(msgspec.Struct):
    fullname: str
    stats: _Stats | None = None
    extra_info: dict[str, Any] = {}


class _File(msgspec.Struct):
    machine_info: dict[str, Any]
    benchmarks: list[_Row]
    datetime: str


def read(path: Path, *, here: Mapping[str, Any] | None = None) -> OldSession:
    """Read one file that was made on this machine.

    :param here: this machine's ``machine_info``; found out where not given.
    :raises EvidenceError: it is no such file, or was made on another machine.
    """
    try:
        content = path.read_bytes()
        file = msgspec.json.decode(content, type=_File)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise EvidenceError(
            f"{path} is no result file of pytest-benchmark.",
            f"{error}.",
            "Name a file such as .benchmarks/Linux-CPython-3.11-64bit/0001_name.json.",
        ) from error
    _check_machine(path, file.machine_info, this_machine() if here is None else here)
    sound = [row for row in file.benchmarks if row.extra_info.get("verdict") != "INVALID"]
    medians = {row.fullname: None if row.stats is None else row.stats.median for row in sound}
    return OldSession(
        session_id=f"benchmark-{hashlib.sha256(content).hexdigest()[:16]}",
        started_at=file.datetime,
        source=path.name,
        medians_s={name: each for name, each in medians.items() if each and _is_duration(each)},
        refused={
            name: f"its median is {each}"
            for name, each in medians.items()
            if each is None or not _is_duration(each)
        }
        | {row.fullname: "it was INVALID" for row in file.benchmarks if row not in sound},
    )


def this_machine() -> dict[str, Any]:
    """The machine we run on as pytest-benchmark describes one, in the fields that are compared."""
    facts = place.facts()
    return {
        "node": platform.node(),
        "system": platform.system(),
        "release": platform.release(),
        "machine": platform.machine(),
        "processor": platform.processor(),
        "python_version": platform.python_version(),
        "cpu": {"brand_raw": facts["cpu"], "count": facts["cores"]},
    }


def place_of_benchmarks(machine: Mapping[str, Any]) -> Half:
    """The place of such numbers: the machine, and pytest-benchmark as the instrument.

    :param machine: facts of the machine as ``place.facts`` gives them.
    """
    facts = machine_facts(machine)
    return Half(side="place", facts=facts | {"instrument": "pytest-benchmark"})


def subject_of_benchmarks(test: str) -> Half:
    """What such a number is of: nothing but the test's name is known."""
    return Half(side="subject", facts={"build": None, "model": None, "test": test})


def _check_machine(path: Path, there: Mapping[str, Any], here: Mapping[str, Any]) -> None:
    mine, theirs = _facts(here), _facts(there)
    apart = [
        f"{name}: {theirs[name]!r} there, {mine[name]!r} here"
        for name in mine
        if theirs[name] != mine[name]
    ]
    if apart:
        raise EvidenceError(
            f"{path} was made on another machine.",
            f"{'; '.join(apart)}.",
            "Numbers of two machines are not comparable; import it where it was made.",
        )


def _facts(machine_info: Mapping[str, Any]) -> dict[str, Any]:
    cpu = machine_info.get("cpu")
    below = cpu if isinstance(cpu, Mapping) else {}
    facts = {name: machine_info.get(name) for name in _MACHINE}
    return facts | {f"cpu {name}": below.get(name) for name in _CPU}


def _is_duration(seconds: float) -> bool:
    return 0 < seconds < math.inf
