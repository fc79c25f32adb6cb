"""GPUs through NVML: clocks, power, heat, memory, and who else computes on them.

``nvidia-ml-py`` is asked for where there is an NVIDIA driver only. A question that NVML does not
support has no answer (``None``); every other error is kept as an error beside the facts.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from pytest_llmperf.fitness import Gpu
from pytest_llmperf.machine import host

SLOW_DOWNS = {
    0x4: "power cap",
    0x8: "hardware slow-down",
    0x20: "software thermal slow-down",
    0x40: "hardware thermal slow-down",
    0x80: "power brake",
}
"""NVML's bits for why clocks are lower than asked for, without those of idling and of settings."""

NORMAL = frozenset({"power cap"})
"""A card at its power limit works as it was built to."""

_MILLI = 1000.0
_PERCENT = 100.0


class Gpus:
    """All GPUs of this machine.

    :param nvml: stands for the module ``pynvml``; imported when not given and there is a driver.
    """

    def __init__(self, *, root: Path = host.ROOT, nvml: Any = None) -> None:  # noqa: ANN401 - a module
        self._root = root
        self._nvml = nvml
        self.problem: str | None = None
        """Why NVML cannot be asked, where there is a driver."""
        self._handles: list[Any] = []
        self.has_driver = nvml is not None or (root / "proc/driver/nvidia").is_dir()
        if self.has_driver:
            self._open()

    def _open(self) -> None:
        try:
            self._nvml = self._nvml or importlib.import_module("pynvml")
        except ImportError:
            self.problem = "nvidia-ml-py is not installed"
            return
        try:
            self._nvml.nvmlInit()
            count = range(self._nvml.nvmlDeviceGetCount())
            self._handles = [self._nvml.nvmlDeviceGetHandleByIndex(each) for each in count]
        except self._nvml.NVMLError as error:
            self.problem = f"NVML says: {error}"

    def read(self, ours: Collection[int] | None) -> tuple[Gpu, ...] | None:
        """Every GPU now; none without a driver, ``None`` where NVML cannot be asked.

        :param ours: processes that are not foreign; ``None`` where nobody can tell.
        """
        if not self.has_driver:
            return ()
        if self.problem is not None:
            return None
        return tuple(self._one(index, handle, ours) for index, handle in enumerate(self._handles))

    def _one(self, index: int, handle: Any, ours: Collection[int] | None) -> Gpu:  # noqa: ANN401 - NVML's
        asked = _Asked(self._nvml)
        nvml = self._nvml
        used, total, source = self._memory(asked, handle)
        running = asked("processes", lambda: nvml.nvmlDeviceGetComputeRunningProcesses(handle))
        bits = asked("throttle reasons", lambda: _slow_downs(nvml, handle))
        power = asked("power", lambda: nvml.nvmlDeviceGetPowerUsage(handle))
        used_share = asked("utilisation", lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu)
        name = asked("name", lambda: nvml.nvmlDeviceGetName(handle))
        return Gpu(
            index=index,
            name=name.decode() if isinstance(name, bytes) else name,
            sm_mhz=asked(
                "SM clock", lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)
            ),
            memory_mhz=asked(
                "memory clock", lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM)
            ),
            power_w=None if power is None else power / _MILLI,
            temperature_c=asked(
                "temperature",
                lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
            ),
            utilisation=None if used_share is None else used_share / _PERCENT,
            slowed_by=None
            if bits is None
            else tuple(word for bit, word in SLOW_DOWNS.items() if bits & bit),
            memory_used_bytes=used,
            memory_total_bytes=total,
            memory_from=source,
            foreign=None
            if running is None or ours is None
            else tuple(each.pid for each in running if each.pid not in ours),
            errors=asked.errors,
        )

    def _memory(self, asked: _Asked, handle: Any) -> tuple[int | None, int | None, Any]:  # noqa: ANN401 - NVML's
        """Used and total bytes and where they come from: the machine's own where it is unified."""
        found = asked("memory", lambda: self._nvml.nvmlDeviceGetMemoryInfo(handle))
        if found is not None:
            return int(found.used), int(found.total), "nvml"
        total, free = host.total_bytes(self._root), host.available_bytes(self._root)
        if "memory" in asked.errors or total is None or free is None:
            return None, None, None
        return total - free, total, "unified"


class _Asked:
    """Asks NVML one question after another and keeps what went wrong by name."""

    def __init__(self, nvml: Any) -> None:  # noqa: ANN401 - a module
        self._nvml = nvml
        self.errors: dict[str, str] = {}

    def __call__(self, name: str, question: Callable[[], Any]) -> Any:  # noqa: ANN401 - NVML's
        try:
            return question()
        except self._nvml.NVMLError_NotSupported:
            return None
        except self._nvml.NVMLError as error:
            self.errors[name] = str(error)
            return None


def _slow_downs(nvml: Any, handle: Any) -> int:  # noqa: ANN401 - a module and its handle
    """Newer drivers call the same bits event reasons."""
    newer = getattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", None)
    ask = newer or nvml.nvmlDeviceGetCurrentClocksThrottleReasons
    return int(ask(handle))
