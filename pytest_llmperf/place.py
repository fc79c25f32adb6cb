"""Facts of the machine a run is made on; two runs are compared only where they agree.

What differs in the engine is the subject, and is in ``profile`` and the engine's own record.
"""

from __future__ import annotations

import hashlib
import os
import platform
from pathlib import Path
from typing import Any

NO_GPU = "none"
"""Known: the kernel has no NVIDIA driver, so there is no GPU that an engine could use."""

_DRIVER = Path("/proc/driver/nvidia")


def facts() -> dict[str, Any]:
    """The machine's facts by name; ``None`` where one can't be read, never a guess."""
    return {
        "machine": _machine(),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "memory_bytes": _memory_bytes(),
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "python": platform.python_version(),
        "gpu": _gpu(),
        "gpu_driver": _gpu_driver(),
    }


def _machine() -> str | None:
    """A digest of the machine's id, so that evidence can be shared without naming the host."""
    found = _first_line(Path("/etc/machine-id"))
    return None if not found else hashlib.sha256(found.encode()).hexdigest()[:12]


def _cpu() -> str | None:
    names = (line for line in _lines(Path("/proc/cpuinfo")) if line.startswith("model name"))
    line = next(names, None)
    return line.partition(":")[2].strip() if line else None


def _is_without_gpu() -> bool:
    """Whether the kernel tells of its drivers and has none for NVIDIA."""
    return _DRIVER.parent.is_dir() and not _DRIVER.is_dir()


def _gpu_driver() -> str | None:
    return NO_GPU if _is_without_gpu() else _first_line(_DRIVER / "version")


def _gpu() -> str | None:
    """The models of the GPUs, by the NVIDIA driver's own folder; ``none`` without a driver."""
    folder = _DRIVER / "gpus"
    if _is_without_gpu():
        return NO_GPU
    if not folder.is_dir():
        return None
    found = [
        line.partition(":")[2].strip()
        for each in sorted(folder.iterdir())
        for line in _lines(each / "information")
        if line.startswith("Model:")
    ]
    return ", ".join(found) or None


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None


def _first_line(path: Path) -> str | None:
    return next(iter(_lines(path)), None)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
