"""Records of the machine while it is measured on, and the limits that they are held to.

Reading them off the machine is in ``machine``; what they do to a measurement is in ``proof``.
Cumulative numbers count from the machine's start; ``None`` means that a fact could not be read.
"""

from __future__ import annotations

from typing import Literal

import msgspec

When = Literal["before", "during", "after"]


class _Fact(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Shared settings: frozen; an unknown field is an error, not ignored."""


class Limits(_Fact, frozen=True, kw_only=True):
    """Beyond these a machine is unfit; a profile's ``[fitness]`` lays its own over them."""

    foreign_cpu_share: float = 0.10
    """CPU time of processes that are not ours, as a share of what our cores could give: below the
    smallest change that any profile wants to see, and far below one busy process on two cores."""
    steal_share: float = 0.05
    """CPU time that the hypervisor gave to others while we wanted it."""
    memory_stall_share: float = 0.05
    """Time in which some process waited for memory (the kernel's pressure ``some``)."""
    swapped_mib: float = 64.0
    """Memory swapped in or out inside a window; a working engine moves none."""
    cpu_throttle_events: int = 0
    """How often cores were slowed down because they were hot."""
    gpu_throttled_share: float = 0.10
    """Share of samples in which a GPU was slowed down by heat or by its power supply."""
    canary_slowdown: float = 1.25
    """A canary or frequency is outside its band only if it is also so many times slower."""
    sm_mhz_min: float | None = None
    """Median SM clock under load; ``None``: no such limit is known here."""
    prefill_power_w_min: float | None = None
    """Median GPU power while prompts are read."""
    decode_power_w_min: float | None = None
    """Median GPU power while tokens are generated: far lower than in prefill, and healthy."""


class Band(_Fact, frozen=True, kw_only=True):
    """Where healthy sessions of this place lie."""

    sessions: int
    typical: float
    """Their median."""
    low: float
    high: float
    """A prediction interval for one more session."""


class Gpu(_Fact, frozen=True, kw_only=True):
    """One GPU at one moment, by NVML."""

    index: int
    name: str | None = None
    sm_mhz: float | None = None
    memory_mhz: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    utilisation: float | None = None
    """Share of the last sampling period in which a kernel ran."""
    slowed_by: tuple[str, ...] | None = None
    """NVML's reasons for the clocks being lower than they could be."""
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    memory_from: Literal["nvml", "unified"] | None = None
    """``unified``: NVML does not support the question, and this is the machine's own memory."""
    foreign: tuple[int, ...] | None = None
    """Compute processes on it that are not ours."""
    errors: dict[str, str] = {}
    """What NVML said instead of a fact, unless it was that it does not support the question."""


class Other(_Fact, frozen=True, kw_only=True):
    """A process that is not ours, and the CPU seconds it took inside a window."""

    pid: int
    name: str
    cpu_s: float


class MachineState(_Fact, frozen=True, kw_only=True, tag_field="record", tag="machine_state"):
    """The machine at one moment of a measurement."""

    measurement_id: str
    when: When
    at_ns: int
    cores: int | None = None
    """Cores that our processes may run on; the CPU seconds below are theirs."""
    busy_s: float | None = None
    steal_s: float | None = None
    ours_s: float | None = None
    """CPU seconds of pytest and its engines; ``None`` where the engine is not ours to look into."""
    stalled_s: dict[str, float] | None = None
    """Seconds in which some process waited, by what for: ``cpu``, ``memory``, ``io``."""
    load: float | None = None
    """Load average over a minute."""
    mhz: tuple[float, ...] | None = None
    """Frequency of each of those cores."""
    available_bytes: int | None = None
    swapped_bytes: int | None = None
    """In and out, cumulative."""
    throttle_events: int | None = None
    zones_c: dict[str, float] | None = None
    """Thermal zones by name."""
    gpus: tuple[Gpu, ...] | None = None
    """Empty: there is no NVIDIA driver. ``None``: there is one and NVML could not be asked."""
    gpu_problem: str | None = None
    others: tuple[Other, ...] | None = None
    """The busiest foreign processes of the window, most first; known after it only."""


class Canary(_Fact, frozen=True, kw_only=True, tag_field="record", tag="canary"):
    """A small fixed computation beside an idle engine: how quick the machine itself is."""

    measurement_id: str
    when: Literal["before", "after"]
    at_ns: int
    loop_ns: int
    """Median duration of a fixed loop in pure Python, on one core."""
    copy_ns: int
    """Median duration of a copy of 16 MiB."""


class Precondition(_Fact, frozen=True, kw_only=True, tag_field="record", tag="precondition"):
    """What the machine had to be like for one measurement, as known when it was made."""

    measurement_id: str
    limits: Limits = Limits()
    bands: dict[str, Band] = {}
    """By fact: ``canary_loop_ns``, ``canary_copy_ns``, ``mhz``."""
    no_band: str | None = None
    """Why there are none."""
