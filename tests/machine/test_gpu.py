"""NVML: what it does not support has no answer, and what went wrong is not hidden."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pytest_llmperf.machine import Gpus

Nvml = Callable[..., Any]


def test_without_a_driver_there_are_no_gpus(made_up: Path) -> None:
    assert Gpus(root=made_up).read(set()) == ()


def test_a_driver_without_a_library_is_said_to_be_unseen(made_up: Path) -> None:
    (made_up / "proc/driver/nvidia").mkdir(parents=True)
    gpus = Gpus(root=made_up)
    assert (gpus.read(set()), gpus.problem) == (None, "nvidia-ml-py is not installed")


def test_a_healthy_gpu_answers_every_question(nvml: Nvml, made_up: Path) -> None:
    found = Gpus(root=made_up, nvml=nvml()).read({7})
    assert found is not None
    (gpu,) = found
    assert (gpu.name, gpu.sm_mhz, gpu.power_w, gpu.temperature_c, gpu.utilisation) == (
        "GB10",
        2496,
        36.0,
        61,
        0.96,
    )
    assert (gpu.memory_used_bytes, gpu.memory_total_bytes, gpu.memory_from) == (3, 8, "nvml")
    assert (gpu.slowed_by, gpu.foreign, gpu.errors) == ((), (), {})


def test_only_unsupported_memory_is_the_machine_s_own(nvml: Nvml, made_up: Path) -> None:
    # GB10: its memory is the machine's, and NVML does not support the question.
    made = nvml()
    made = nvml(
        nvmlDeviceGetMemoryInfo=made.NVMLError_NotSupported("Not Supported"),
        nvmlDeviceGetPowerUsage=made.NVMLError_GpuIsLost("GPU is lost"),
    )
    found = Gpus(root=made_up, nvml=made).read(set())
    assert found is not None
    (gpu,) = found
    assert (gpu.memory_used_bytes, gpu.memory_total_bytes, gpu.memory_from) == (
        1536 * 1024,
        2048 * 1024,
        "unified",
    )
    assert (gpu.power_w, gpu.errors) == (None, {"power": "GPU is lost"})


def test_another_error_on_memory_falls_back_to_nothing(nvml: Nvml, made_up: Path) -> None:
    lost = nvml().NVMLError_GpuIsLost("GPU is lost")
    found = Gpus(root=made_up, nvml=nvml(nvmlDeviceGetMemoryInfo=lost)).read(set())
    assert found is not None
    (gpu,) = found
    assert (gpu.memory_used_bytes, gpu.memory_from) == (None, None)
    assert gpu.errors == {"memory": "GPU is lost"}


def test_slow_downs_are_named_and_idling_is_none(nvml: Nvml, made_up: Path) -> None:
    bits = nvml(nvmlDeviceGetCurrentClocksThrottleReasons=0x1 | 0x4 | 0x40)
    found = Gpus(root=made_up, nvml=bits).read(set())
    assert found is not None
    assert found[0].slowed_by == ("power cap", "hardware thermal slow-down")


def test_strangers_on_the_gpu_are_known_only_where_ours_are(nvml: Nvml, made_up: Path) -> None:
    gpus = Gpus(root=made_up, nvml=nvml())
    seen = [(gpus.read(ours) or ())[0].foreign for ours in (set(), {7}, None)]
    assert seen == [(7,), (), None]


def test_a_driver_that_will_not_start_is_said_so(nvml: Nvml, made_up: Path) -> None:
    broken = nvml(init=nvml().NVMLError_GpuIsLost("Driver Not Loaded"))
    gpus = Gpus(root=made_up, nvml=broken)
    assert (gpus.read(set()), gpus.problem) == (None, "NVML says: Driver Not Loaded")
