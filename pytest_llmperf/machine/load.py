"""What the states of a machine come to over a window: shares, medians, and words for a reader.

Whether a share is too large is in ``proof``; the states themselves are taken in ``watch``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import median

from pytest_llmperf.fitness import Gpu, MachineState, Other
from pytest_llmperf.units import percent

LEAST_S = 2.0
"""A shorter window has too few of the kernel's ticks to tell shares of CPU time."""

_GIB = 2**30
_WORTH_A_WORD = 0.001


class Load:
    """One window's states, in the order taken."""

    def __init__(self, states: Iterable[MachineState]) -> None:
        self.states = tuple(sorted(states, key=lambda each: each.at_ns))

    @property
    def duration_s(self) -> float:
        """From the first state to the last; 0 with fewer than two."""
        return (self.states[-1].at_ns - self.states[0].at_ns) / 1e9 if self.states else 0.0

    @property
    def cores(self) -> int | None:
        """How many cores our processes may run on."""
        return self.states[0].cores if self.states else None

    @property
    def ours_share(self) -> float | None:
        """Our CPU time as a share of what the cores could give."""
        return self._share_of_cores(self.grown(lambda each: each.ours_s))

    @property
    def foreign_share(self) -> float | None:
        """CPU time of all processes that are not ours, as a share of what the cores could give.

        Formula: (busy - ours) / (cores x duration). Ticks may make it slightly negative: then 0.
        """
        busy = self.grown(lambda each: each.busy_s)
        ours = self.grown(lambda each: each.ours_s)
        if busy is None or ours is None:
            return None
        return self._share_of_cores(max(0.0, busy - ours))

    @property
    def steal_share(self) -> float | None:
        """Stolen CPU time as a share of what the cores could give."""
        return self._share_of_cores(self.grown(lambda each: each.steal_s))

    def stalled_share(self, resource: str) -> float | None:
        """Share of the window in which some process waited for a resource."""
        stalled = self.grown(lambda each: (each.stalled_s or {}).get(resource))
        return None if stalled is None or not self.duration_s else stalled / self.duration_s

    @property
    def swapped_bytes(self) -> float | None:
        """Memory swapped in or out inside the window."""
        return self.grown(lambda each: each.swapped_bytes)

    @property
    def throttle_events(self) -> float | None:
        """How often a core was slowed down by heat inside the window."""
        return self.grown(lambda each: each.throttle_events)

    @property
    def mhz(self) -> float | None:
        """Median frequency over cores and samples."""
        return middle(value for each in self.states for value in each.mhz or ())

    @property
    def available_bytes(self) -> int | None:
        """The least memory that was available."""
        known = [each.available_bytes for each in self.states if each.available_bytes is not None]
        return min(known, default=None)

    @property
    def hottest_c(self) -> float | None:
        """The highest temperature of any zone or GPU."""
        zones = [value for each in self.states for value in (each.zones_c or {}).values()]
        gpus = [gpu.temperature_c for gpu in self.gpus() if gpu.temperature_c is not None]
        return max([*zones, *gpus], default=None)

    @property
    def others(self) -> tuple[Other, ...]:
        """The busiest foreign processes, as seen at the end."""
        return next((each.others for each in reversed(self.states) if each.others), ())

    def gpus(self) -> list[Gpu]:
        """Every GPU of every state."""
        return [gpu for each in self.states for gpu in each.gpus or ()]

    def grown(self, of: Callable[[MachineState], float | None]) -> float | None:
        """By how much a cumulative fact grew over the window; ``None`` if an end lacks it."""
        if len(self.states) < 2:  # noqa: PLR2004 - a first and a last one
            return None
        first, last = of(self.states[0]), of(self.states[-1])
        return None if first is None or last is None else last - first

    def _share_of_cores(self, seconds: float | None) -> float | None:
        if seconds is None or not self.cores or self.duration_s < LEAST_S:
            return None
        return seconds / (self.cores * self.duration_s)


def middle(values: Iterable[float]) -> float | None:
    """The median; ``None`` of nothing."""
    known = list(values)
    return median(known) if known else None


def words(states: Sequence[MachineState]) -> str:
    """A window's machine on one short line, for every row of a report.

    Whose the CPU time was always stands there; of the rest what is known and not nothing. All
    that was read stands in the evidence, and in ``phases``.
    """
    load = Load(states)
    if not load.states:
        return "machine not watched"
    foreign = load.foreign_share
    parts = [
        "other processes' CPU not known"
        if foreign is None
        else f"other processes {percent(foreign)} of {load.cores} cores",
        _part("stolen {}", _some(load.steal_share), percent),
        _part("waiting for memory {}", _some(load.stalled_share("memory")), percent),
        _part("{} MHz", load.mhz, "{:,.0f}".format),
        _part("hottest {} C", load.hottest_c, "{:.0f}".format),
        *_gpu_words(load),
    ]
    return f"machine: {', '.join(part for part in parts if part)}"


def phases(states: Sequence[MachineState]) -> tuple[tuple[str, str], ...]:
    """The machine before, during and after a load, each in words; only what was recorded."""
    found = []
    for when in ("before", "during", "after"):
        chosen = [each for each in states if each.when == when]
        if chosen:
            load = Load(chosen)
            parts = [
                _part("load {}", middle(_known(each.load for each in chosen)), "{:.1f}".format),
                _part("{} MHz", load.mhz, "{:,.0f}".format),
                _part("hottest {} C", load.hottest_c, "{:.0f}".format),
                _part("{} GiB free", load.available_bytes, _gib),
                *_gpu_words(load),
            ]
            found.append((when, ", ".join(part for part in parts if part) or "not measured"))
    return tuple(found)


def _known(values: Iterable[float | None]) -> list[float]:
    return [each for each in values if each is not None]


def _part(text: str, value: float | None, shown: Callable[[float], str]) -> str:
    return "" if value is None else text.format(shown(value))


def _some(share: float | None) -> float | None:
    """A share that is worth a word."""
    return share if share and share >= _WORTH_A_WORD else None


def _gib(value: float) -> str:
    return f"{value / _GIB:.1f}"


def _gpu_words(load: Load) -> list[str]:
    gpus = load.gpus()
    return [
        _part("SM {} MHz", middle(_known(each.sm_mhz for each in gpus)), "{:,.0f}".format),
        _part("{} W", middle(_known(each.power_w for each in gpus)), "{:.0f}".format),
    ]
