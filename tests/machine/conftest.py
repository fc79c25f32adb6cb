"""A machine made of files, and an NVML that says what it is told to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

STAT = """cpu  300 0 100 1000 0 0 0 10 0 0
cpu0 200 0 50 500 5 3 2 10 40 0
cpu1 100 0 50 500 0 0 0 0 0 0
cpu2 9000 0 0 0 0 0 0 900 0 0
intr 1
"""

FILES = {
    "proc/stat": STAT,
    "proc/loadavg": "1.50 1.0 0.5 2/100 999\n",
    "proc/pressure/cpu": "some avg10=1.00 avg60=0.00 avg300=0.00 total=4000000\n",
    "proc/pressure/memory": "some avg10=0.00 avg60=0.00 avg300=0.00 total=2500000\nfull total=9\n",
    "proc/cpuinfo": "cpu MHz\t\t: 2100.000\ncpu MHz\t\t: 2200.000\ncpu MHz\t\t: 9.0\n",
    "proc/meminfo": "MemTotal: 2048 kB\nMemAvailable: 512 kB\nHugePages_Total: 0\n",
    "proc/vmstat": "pswpin 2\npswpout 3\n",
    "sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count": "4\n",
    "sys/devices/system/cpu/cpu1/thermal_throttle/core_throttle_count": "1\n",
    "sys/class/thermal/thermal_zone0/temp": "53000\n",
    "sys/class/thermal/thermal_zone0/type": "soc\n",
    "sys/class/thermal/thermal_zone1/temp": "61500\n",
    "sys/class/thermal/thermal_zone1/type": "soc\n",
}


@pytest.fixture
def written(tmp_path: Path) -> Callable[[dict[str, str]], Path]:
    """Put files below a root."""

    def write(files: dict[str, str]) -> Path:
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return tmp_path

    return write


@pytest.fixture
def made_up(written: Callable[[dict[str, str]], Path]) -> Path:
    """The root of a machine with everything that Linux can tell."""
    return written(FILES)


class NVMLError(Exception):
    """As NVML's own."""


class NVMLError_NotSupported(NVMLError):  # noqa: N801 - NVML's own name
    """As NVML's own."""


class NVMLError_GpuIsLost(NVMLError):  # noqa: N801 - NVML's own name
    """As NVML's own."""


@pytest.fixture
def nvml() -> Callable[..., Any]:
    """Make an NVML of one GPU; a value that is an exception is raised."""

    def make(**said: Any) -> Any:  # noqa: ANN401 - any answer, or an exception
        answers = {
            "nvmlDeviceGetName": "GB10",
            "nvmlDeviceGetClockInfo": 2496,
            "nvmlDeviceGetPowerUsage": 36_000,
            "nvmlDeviceGetTemperature": 61,
            "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=96),
            "nvmlDeviceGetMemoryInfo": SimpleNamespace(used=3, total=8),
            "nvmlDeviceGetComputeRunningProcesses": [SimpleNamespace(pid=7)],
            "nvmlDeviceGetCurrentClocksThrottleReasons": 0x1,
            **said,
        }

        def answering(answer: Any) -> Callable[..., Any]:  # noqa: ANN401 - likewise
            def answered(*_: object) -> Any:  # noqa: ANN401 - likewise
                if isinstance(answer, Exception):
                    raise answer
                return answer

            return answered

        return SimpleNamespace(
            NVMLError=NVMLError,
            NVMLError_NotSupported=NVMLError_NotSupported,
            NVMLError_GpuIsLost=NVMLError_GpuIsLost,
            NVML_CLOCK_SM=1,
            NVML_CLOCK_MEM=2,
            NVML_TEMPERATURE_GPU=0,
            nvmlInit=answering(said.get("init")),
            nvmlDeviceGetCount=lambda: 1,
            nvmlDeviceGetHandleByIndex=lambda index: index,
            **{name: answering(answer) for name, answer in answers.items() if name != "init"},
        )

    return make
