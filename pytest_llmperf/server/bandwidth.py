"""Probes the memory's bandwidth from a process beside the engine, in the engine's own Python.

The script that reads memory is ``streaming``; what share of it a decode step reaches is in
``ceiling``.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import msgspec

from pytest_llmperf import record

REPETITIONS = 12
"""Passes over the array, for each kernel and number of threads."""

_MOST_BYTES = 2 * 2**30
_LEAST_CACHE = 32 * 2**20
_SHARE_OF_FREE = 4
_PROBE_S = 120.0
_SCRIPT = Path(__file__).with_name("streaming.py")
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}


def probe(
    engine: record.Engine,
    measurement_id: str,
    *,
    script: Path = _SCRIPT,
    repetitions: int = REPETITIONS,
    most_bytes: int = _MOST_BYTES,
) -> record.Bandwidth:
    """Measure the bandwidth with all cores, and with the engine's own number of threads.

    Nothing is raised: what went wrong stands in ``problem``.
    """
    known = record.Bandwidth(
        measurement_id=measurement_id,
        boot_id=engine.boot_id,
        cache_bytes=last_level_cache_bytes(),
        engine_threads=engine_threads(engine),
    )
    if engine.attached or not engine.command:
        problem = "the server is attached: where it runs, and on which memory, is not known"
        return msgspec.structs.replace(known, problem=problem)
    cores = len(os.sched_getaffinity(0))
    counts = sorted({cores, min(known.engine_threads or cores, cores)})
    # Without a known cache the array is four times the least one that a server has.
    cache = max(known.cache_bytes or 0, _LEAST_CACHE)
    most = min(most_bytes, _available_bytes() // _SHARE_OF_FREE)
    sizes = (str(cache), str(most), str(repetitions))
    command = (engine.command[0], "-I", str(script), *sizes, *map(str, counts))
    return _joined(known, command)


def engine_threads(engine: record.Engine) -> int | None:
    """How many threads the engine was told to compute with; ``None`` where it was not told."""
    told = engine.environment.get("OMP_NUM_THREADS", "")
    return int(told) if told.isdigit() else None


def last_level_cache_bytes(folder: Path = _CACHES) -> int | None:
    """The size of the largest cache that the kernel tells of; ``None`` where it tells of none."""
    sizes = []
    for path in folder.glob("index*/size"):
        text = path.read_text(encoding="ascii").strip()
        number, unit = text.rstrip("KMG"), text[-1:]
        if number.isdigit():
            sizes.append(int(number) * _UNITS.get(unit, 1))
    return max(sizes, default=None)


def _joined(known: record.Bandwidth, command: tuple[str, ...]) -> record.Bandwidth:
    # The probe decides its threads itself: what the environment says of OpenMP must not.
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("OMP_", "MKL_"))}
    try:
        done = subprocess.run(  # noqa: S603 - the engine's own Python, as the profile names it
            command,
            capture_output=True,
            text=True,
            timeout=_PROBE_S,
            check=True,
            env=environment,
        )
        found = json.loads(done.stdout)
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip().splitlines() or ["it said nothing"])[-1]
        return _failed(known, f"it ended with exit code {error.returncode}: {last}")
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        return _failed(known, f"{type(error).__name__}: {error}")
    return _read(known, found)


def _read(known: record.Bandwidth, found: dict[str, Any]) -> record.Bandwidth:
    return msgspec.structs.replace(
        known,
        device=found["device"],
        array_bytes=found["array_bytes"],
        cache_bytes=found["cache_bytes"] or known.cache_bytes,
        series=msgspec.convert(found["series"], tuple[record.Streamed, ...]),
    )


def _failed(known: record.Bandwidth, why: str) -> record.Bandwidth:
    return msgspec.structs.replace(known, problem=f"the bandwidth probe failed: {why}")


def _available_bytes() -> int:
    import psutil  # noqa: PLC0415 - a plain pytest run does not pay for it

    return int(psutil.virtual_memory().available)
