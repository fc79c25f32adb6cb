"""Whether the machine was fit to be measured on; an unfit one is INVALID, never slower software.

The machine's states are taken in ``machine``; the limits stand in the profile's ``[fitness]``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from statistics import median
from typing import Literal

from pytest_llmperf.fitness import Band, Gpu, Limits, MachineState, Precondition
from pytest_llmperf.machine import Load, middle, words
from pytest_llmperf.machine.gpu import NORMAL
from pytest_llmperf.proof.contradiction import Contradiction, Finding
from pytest_llmperf.proof.window import Window
from pytest_llmperf.units import counted, percent, quantity, ratio

Phase = Literal["prefill", "decode"]

FEWEST_SAMPLES = 5
"""Samples of a phase below which its power and clocks are not judged."""

_MIB = 2**20
_AGAIN = "Then measure again: the machine was unfit, which says nothing of the build."
_DECLARE = "The limit is [fitness] {} in the profile."


class Machine:
    """A window's machine, with the limits and bands that it is held to."""

    def __init__(self, window: Window) -> None:
        self._window = window
        self._precondition = window.measured.precondition or Precondition(measurement_id="")
        self.load = Load(window.measured.machine)

    @property
    def limits(self) -> Limits:
        """Beyond these the machine is unfit."""
        return self._precondition.limits

    def band(self, fact: str) -> Band | None:
        """Where healthy sessions of this place lie, if that is known."""
        return self._precondition.bands.get(fact)

    def canary_ns(self, fact: str) -> float | None:
        """Median over the canaries beside this window."""
        found = self._window.measured.canaries
        return middle(each.loop_ns if fact == "canary_loop_ns" else each.copy_ns for each in found)

    @cached_property
    def phased(self) -> list[tuple[Phase, Gpu]]:
        """GPUs sampled while one kind of work alone was done."""
        return [
            (phase, gpu)
            for state in self.load.states
            if (phase := self._phase(state)) is not None
            for gpu in state.gpus or ()
        ]

    def _phase(self, state: MachineState) -> Phase | None:
        """What all requests in hand were doing then; ``None`` if nothing, or several things."""
        doing: set[Phase] = set()
        for each in self._window.inside:
            sent, first = each.stamps.sent_ns, each.stamps.first_token_ns
            last = each.stamps.last_token_ns
            if sent is not None and first is not None and sent <= state.at_ns < first:
                doing.add("prefill")
            elif first is not None and last is not None and first <= state.at_ns <= last:
                doing.add("decode")
        return doing.pop() if len(doing) == 1 else None


def fitness_words(window: Window) -> str:
    """The machine on one line, with its canary; empty where it was not watched."""
    states = window.measured.machine
    return f"{words(states)}{_canary_words(Machine(window))}" if states else ""


def _canary_words(machine: Machine) -> str:
    value, band = machine.canary_ns("canary_loop_ns"), machine.band("canary_loop_ns")
    if value is None:
        return ""
    if band is not None:
        return f", canary {ratio(value / band.typical)} its usual time"
    return f", canary {quantity(value / 1e9, 's')} (no band yet)"


def foreign_load(window: Window) -> Contradiction | None:
    """Other processes took no noticeable part of the CPU."""
    machine = Machine(window)
    share, limit = machine.load.foreign_share, machine.limits.foreign_cpu_share
    if share is None or share <= limit:
        return None
    return Contradiction(
        kind="foreign_load",
        reason=f"Other processes took {percent(share)} of the CPU while it was measured.",
        evidence=f"{_seconds_of(machine.load)}; at most {percent(limit)} is allowed."
        f"{_named(machine.load)}",
        remedy=f"Stop them, or move them to another machine. {_AGAIN} "
        f"{_DECLARE.format('foreign_cpu_share')}",
    )


def _seconds_of(load: Load) -> str:
    share = load.foreign_share or 0.0
    whole = (load.cores or 0) * load.duration_s
    return f"{share * whole:.1f} of {whole:.1f} CPU seconds ({load.cores} cores)"


def _named(load: Load) -> str:
    named = [f"{each.name} (process {each.pid}) {each.cpu_s:.1f} s" for each in load.others]
    return f" Busiest: {', '.join(named)}." if named else " None of them is still there."


def stolen(window: Window) -> Contradiction | None:
    """The hypervisor gave us the cores that we asked for."""
    machine = Machine(window)
    share, limit = machine.load.steal_share, machine.limits.steal_share
    if share is None or share <= limit:
        return None
    return Contradiction(
        kind="stolen",
        reason=f"The hypervisor gave {percent(share)} of the CPU to other machines.",
        evidence=f"Steal time over {machine.load.duration_s:.0f} s; "
        f"at most {percent(limit)} is allowed.",
        remedy=f"Use a machine of your own or a dedicated instance. {_AGAIN} "
        f"{_DECLARE.format('steal_share')}",
    )


def short_of_memory(window: Window) -> Contradiction | None:
    """Nobody waited for memory, and nothing was swapped."""
    machine = Machine(window)
    load, limits = machine.load, machine.limits
    share, swapped = load.stalled_share("memory"), load.swapped_bytes
    found = []
    if share is not None and share > limits.memory_stall_share:
        found.append(
            f"processes waited for memory in {percent(share)} of the time, "
            f"at most {percent(limits.memory_stall_share)} is allowed"
        )
    if swapped is not None and swapped > limits.swapped_mib * _MIB:
        found.append(
            f"{swapped / _MIB:,.0f} MiB were swapped, at most {limits.swapped_mib:g} are allowed"
        )
    if not found:
        return None
    text = "; ".join(found)
    return Contradiction(
        kind="short_of_memory",
        reason="The machine was short of memory.",
        evidence=f"{text[0].upper()}{text[1:]}.",
        remedy=f"Stop what holds memory, or give the engine less of it. {_AGAIN} "
        f"{_DECLARE.format('memory_stall_share or swapped_mib')}",
    )


def throttled(window: Window) -> Contradiction | None:
    """Neither cores nor GPUs were slowed down by heat or by their power supply."""
    machine = Machine(window)
    events, limits = machine.load.throttle_events, machine.limits
    if events is not None and events > limits.cpu_throttle_events:
        return _throttled(
            f"Cores were slowed down {counted(round(events), 'time')}, "
            f"at most {limits.cpu_throttle_events} are allowed.",
            "cpu_throttle_events",
        )
    asked = [each for each in machine.load.gpus() if each.slowed_by is not None]
    slowed = [set(each.slowed_by or ()) - NORMAL for each in asked]
    share = sum(map(bool, slowed)) / len(slowed) if slowed else 0.0
    if share <= limits.gpu_throttled_share:
        return None
    why = ", ".join(sorted(set().union(*slowed)))
    return _throttled(
        f"The GPU was slowed down in {percent(share)} of {counted(len(slowed), 'sample')} ({why}), "
        f"at most {percent(limits.gpu_throttled_share)} is allowed.",
        "gpu_throttled_share",
    )


def _throttled(evidence: str, limit: str) -> Contradiction:
    return Contradiction(
        kind="throttled",
        reason="The machine was throttled while it was measured.",
        evidence=evidence,
        remedy=f"Let it cool down, and look at its fans and its power supply. {_AGAIN} "
        f"{_DECLARE.format(limit)}",
    )


def gpu_errors(window: Window) -> Contradiction | None:
    """Every question that the GPU's driver supports was answered."""
    found = dict.fromkeys(
        f"GPU {gpu.index}, {what}: {error}"
        for gpu in Machine(window).load.gpus()
        for what, error in gpu.errors.items()
    )
    if not found:
        return None
    return Contradiction(
        kind="gpu_error",
        reason="The GPU's driver reported errors while it was measured.",
        evidence=f"{'; '.join(found)}.",
        remedy=f"Look at the driver's log (dmesg, nvidia-smi) and mend that first. {_AGAIN}",
    )


def shared_gpu(window: Window) -> Contradiction | None:
    """Nobody else computed on the GPU."""
    pids = sorted({pid for gpu in Machine(window).load.gpus() for pid in gpu.foreign or ()})
    if not pids:
        return None
    return Contradiction(
        kind="shared_gpu",
        reason="Another process computed on the GPU while it was measured.",
        evidence=f"Not ours: {', '.join(f'process {pid}' for pid in pids)}.",
        remedy=f"Stop it. {_AGAIN}",
    )


def sluggish(window: Window) -> Contradiction | None:
    """The canary sang as in healthy sessions of this place."""
    machine = Machine(window)
    for fact, what in (("canary_loop_ns", "loop"), ("canary_copy_ns", "copy of 16 MiB")):
        band, value = machine.band(fact), machine.canary_ns(fact)
        if band is None or value is None or value <= band.high:
            continue
        if value > machine.limits.canary_slowdown * band.typical:
            return Contradiction(
                kind="sluggish",
                reason=f"The machine is slow today: its canary took {ratio(value / band.typical)} "
                "its usual time.",
                evidence=f"A fixed {what}: {quantity(value / 1e9, 's')}; "
                f"{band.sessions} healthy sessions of this place say at most "
                f"{quantity(band.high / 1e9, 's')}.",
                remedy="Look for a power-saving mode, heat, or a busy host. "
                f"{_AGAIN} {_DECLARE.format('canary_slowdown')}",
            )
    return None


def clocked_down(window: Window) -> Contradiction | None:
    """The cores' frequency was that of healthy sessions of this place."""
    machine = Machine(window)
    band, value = machine.band("mhz"), machine.load.mhz
    if band is None or value is None or value >= band.low:
        return None
    if value * machine.limits.canary_slowdown >= band.typical:
        return None
    return Contradiction(
        kind="clocked_down",
        reason=f"The cores ran at {value:,.0f} MHz, {percent(value / band.typical)} of what "
        "they usually do.",
        evidence=f"{band.sessions} healthy sessions of this place say at least "
        f"{band.low:,.0f} MHz.",
        remedy="Look for a power-saving mode, a power limit, or heat. "
        f"{_AGAIN} {_DECLARE.format('canary_slowdown')}",
    )


def underpowered(window: Window) -> Contradiction | None:
    """Clocks and power were what this GPU shows when it works; each phase has its own limit."""
    machine = Machine(window)
    limits = machine.limits
    asked: tuple[tuple[str, Phase | None, Callable[[Gpu], float | None], str], ...] = (
        ("sm_mhz_min", None, lambda each: each.sm_mhz, "MHz"),
        ("prefill_power_w_min", "prefill", lambda each: each.power_w, "W"),
        ("decode_power_w_min", "decode", lambda each: each.power_w, "W"),
    )
    for name, phase, of, unit in asked:
        limit = getattr(limits, name)
        seen = [of(gpu) for doing, gpu in machine.phased if phase in (None, doing)]
        values = [each for each in seen if each is not None]
        if limit is None or len(values) < FEWEST_SAMPLES or median(values) >= limit:
            continue
        during = f"in {phase}" if phase else "under load"
        return Contradiction(
            kind="underpowered",
            reason=f"The GPU ran at {median(values):,.0f} {unit} {during}, "
            f"below the {limit:,.0f} {unit} of a healthy one.",
            evidence=f"Median of {counted(len(values), 'sample')} taken {during} only.",
            remedy="Look at its power supply, power limit and clocks (nvidia-smi -q). "
            f"{_AGAIN} {_DECLARE.format(name)}",
        )
    return None


def disturbed(window: Window) -> Finding | None:
    """Milder things: half of what would make the machine unfit."""
    machine = Machine(window)
    load, limits = machine.load, machine.limits
    shares: Iterable[tuple[str, float | None, float]] = (
        ("other processes took {} of the CPU", load.foreign_share, limits.foreign_cpu_share),
        ("{} of the CPU was stolen", load.steal_share, limits.steal_share),
        (
            "processes waited for memory in {} of the time",
            load.stalled_share("memory"),
            limits.memory_stall_share,
        ),
    )
    found = [
        text.format(percent(share))
        for text, share, limit in shares
        if share is not None and limit / 2 < share <= limit
    ]
    if not found:
        return None
    return Finding(kind="disturbed", text=f"The machine was disturbed: {'; '.join(found)}.")


def gpu_unseen(window: Window) -> Finding | None:
    """There is a GPU and nobody looked at it."""
    problems = {each.gpu_problem for each in Machine(window).load.states} - {None}
    if not problems:
        return None
    return Finding(
        kind="gpu_unseen",
        text=f"The GPU's clocks, power and heat were not seen: {'; '.join(map(str, problems))}.",
    )
