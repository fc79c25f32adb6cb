"""Facts of the host read from the kernel's files: CPU time, pressure, clocks, memory, heat.

Whose CPU time it was is in ``family``; GPUs are in ``gpu``. A file that is missing or odd gives
``None``; nothing here takes longer than a few reads of memory that the kernel holds.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path("/")
"""Where ``proc`` and ``sys`` are; tests give another one."""

_FIRST_PID_NAMESPACE = f"pid:[{0xEFFFFFFC}]"  # PROC_PID_INIT_INO in the kernel's proc_ns.h
_TICKS = 100
_PAGE = 4096
_MILLI = 1000.0
_KIB = 1024
_KILO_HZ = 1000.0


class CpuTime(NamedTuple):
    """CPU seconds since the machine's start, over the cores that we may run on."""

    cores: int
    busy_s: float
    steal_s: float


def ticks() -> int:
    """Ticks of the kernel's CPU accounting a second."""
    return os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else _TICKS


def our_cores() -> set[int] | None:
    """The cores that we may run on; ``None`` where the system does not say."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None


def cpu_time(root: Path = ROOT, cores: set[int] | None = None) -> CpuTime | None:
    """CPU time spent, and stolen, on some cores (all of them if not given).

    ``user`` holds ``guest`` already. Idle and waiting for input are no time spent.
    """
    counted = []
    for line in lines(root / "proc/stat"):
        name, *fields = line.split()
        core = name.removeprefix("cpu")
        if name.startswith("cpu") and core.isdigit() and (cores is None or int(core) in cores):
            counted.append([int(each) for each in fields])
    if not counted or any(len(each) < 8 for each in counted):  # noqa: PLR2004 - through steal
        return None
    busy = sum(sum(each[:3]) + each[5] + each[6] for each in counted)
    steal = sum(each[7] for each in counted)
    return CpuTime(len(counted), busy / ticks(), steal / ticks())


def stalled_s(root: Path = ROOT) -> dict[str, float] | None:
    """Cumulative seconds of pressure ``some`` by resource; ``None`` without pressure accounting."""
    found = {}
    for resource in ("cpu", "memory", "io"):
        for line in lines(root / "proc/pressure" / resource):
            total = re.match(r"some .*\btotal=(\d+)", line)
            if total:
                found[resource] = int(total.group(1)) / 1e6
    return found or None


def load(root: Path = ROOT) -> float | None:
    """Load average over a minute."""
    return next((float(line.split()[0]) for line in lines(root / "proc/loadavg")), None)


def mhz(root: Path = ROOT, cores: set[int] | None = None) -> tuple[float, ...] | None:
    """Frequency of each core, by cpufreq where the kernel has it, else by ``/proc/cpuinfo``.

    A virtual machine is told one constant number, which says nothing of the host.
    """
    wanted = None if cores is None else sorted(cores)
    folder = root / "sys/devices/system/cpu"
    if wanted is not None:
        paths = [folder / f"cpu{core}/cpufreq/scaling_cur_freq" for core in wanted]
        found = [value / _KILO_HZ for path in paths if (value := _number(path)) is not None]
        if found:
            return tuple(found)
    told = [
        float(line.partition(":")[2])
        for line in lines(root / "proc/cpuinfo")
        if line.startswith("cpu MHz")
    ]
    chosen = [told[core] for core in wanted if core < len(told)] if wanted else told
    return tuple(chosen) or None


def available_bytes(root: Path = ROOT) -> int | None:
    """Memory that a new process could have without swapping."""
    return _meminfo(root).get("MemAvailable")


def total_bytes(root: Path = ROOT) -> int | None:
    """All memory of the machine."""
    return _meminfo(root).get("MemTotal")


def _meminfo(root: Path) -> dict[str, int]:
    pairs = (line.partition(":") for line in lines(root / "proc/meminfo"))
    return {name: int(rest.split()[0]) * _KIB for name, _, rest in pairs if rest.endswith("kB")}


def swapped_bytes(root: Path = ROOT) -> int | None:
    """Memory swapped in and out since the machine's start."""
    pairs = dict(line.split() for line in lines(root / "proc/vmstat"))
    if not {"pswpin", "pswpout"} <= pairs.keys():
        return None
    return (int(pairs["pswpin"]) + int(pairs["pswpout"])) * _PAGE


def throttle_events(root: Path = ROOT) -> int | None:
    """How often cores were slowed down by heat since the machine's start."""
    folder = root / "sys/devices/system/cpu"
    paths = folder.glob("cpu[0-9]*/thermal_throttle/core_throttle_count")
    found = [int(value) for path in paths if (value := _number(path)) is not None]
    return sum(found) if found else None


def zones_c(root: Path = ROOT) -> dict[str, float] | None:
    """Thermal zones in degrees Celsius by name; two of one name are numbered."""
    found: dict[str, float] = {}
    for zone in sorted((root / "sys/class/thermal").glob("thermal_zone*")):
        value = _number(zone / "temp")
        kind = next(lines(zone / "type"), zone.name)
        if value is not None:
            name = kind if kind not in found else f"{kind} {zone.name.removeprefix('thermal_')}"
            found[name] = value / _MILLI
    return found or None


def boot_id(root: Path = ROOT) -> str | None:
    """What tells this boot of the machine from any other."""
    return next(lines(root / "proc/sys/kernel/random/boot_id"), None)


def pid_namespace(root: Path = ROOT) -> str | None:
    """The namespace in which our process numbers mean something."""
    try:
        return str((root / "proc/self/ns/pid").readlink())
    except OSError:
        return None


def is_first_pid_namespace(root: Path = ROOT) -> bool:
    """Whether our process numbers are those of the machine itself."""
    return pid_namespace(root) == _FIRST_PID_NAMESPACE


def lines(path: Path) -> Iterator[str]:
    """A kernel file's lines; none where it cannot be read."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    yield from text.splitlines()


def _number(path: Path) -> float | None:
    try:
        return float(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
