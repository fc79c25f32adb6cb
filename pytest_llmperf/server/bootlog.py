"""An engine's log while it boots: its phases, its last lines, whether it still grows.

What follows from a log that stands still is in ``readiness``; what a dead engine's log says is in
``autopsy``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import msgspec

CHECKPOINT = "checkpoint"
IMPORTING = "importing"
PROBING = "probing"

_PHASES: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("configuring", re.compile(r"non-default args|Resolved architecture")),
    ("starting the engine core", re.compile(r"Enabled custom fusions|Initializing a V1 LLM")),
    ("loading weights", re.compile(r"Starting to load model|safetensors checkpoint shards")),
    (
        "compiling and warming up",
        re.compile(
            r"Dynamo bytecode transform|Compiling a graph|torch\.compile takes|Capturing CUDA|"
            r"Graph capturing finished|Warming up|Autotuning process (?:starts|ends)"
        ),
    ),
    ("cache", re.compile(r"KV cache (?:size|memory)|init engine \(")),
    ("listening", re.compile(r"Starting vLLM server|Application startup complete")),
)
_BEFORE_LOADING = ("configuring", "starting the engine core")
_TAIL_BYTES = 64 * 1024
_SECOND_NS = 1e9


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """Where a boot stands; its text is one line for a person."""

    engine: str
    phase: str
    phase_s: float
    boot_s: float
    line: str = ""
    """The last line of the log, or what is being made ready."""

    def __str__(self) -> str:
        return (
            f"booting {self.engine}, {self.phase}: {self.phase_s:.0f} s, {self.boot_s:.0f} s in all"
        )


class BootLog:
    """The log file of one engine, read as it grows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.read_bytes = 0
        self.last_line = ""
        self._rest = ""
        self._loads = False

    def new_phases(self) -> list[str]:
        """The phases that lines since the last call speak of, in order.

        A drafter is configured and loaded after the target; that is not told as a step back.
        """
        phases = []
        for line in self._new_lines():
            phase = phase_of(line)
            if phase is not None and not (self._loads and phase in _BEFORE_LOADING):
                self._loads = self._loads or phase not in _BEFORE_LOADING
                phases.append(phase)
        return phases

    def _new_lines(self) -> list[str]:
        try:
            with self.path.open("rb") as log:
                log.seek(self.read_bytes)
                read = log.read()
        except FileNotFoundError:
            return []
        self.read_bytes += len(read)
        # A progress bar rewrites its line by carriage returns.
        *lines, self._rest = re.split(r"[\r\n]+", self._rest + read.decode(errors="replace"))
        self.last_line = next((each for each in reversed(lines) if each.strip()), self.last_line)
        return lines

    def tail(self, lines: int) -> str:
        """The last lines, without empty ones."""
        try:
            with self.path.open("rb") as log:
                log.seek(max(0, self.path.stat().st_size - _TAIL_BYTES))
                text = log.read().decode(errors="replace")
        except FileNotFoundError:
            return ""
        kept = [each for each in re.split(r"[\r\n]+", text) if each.strip()]
        return "\n".join(kept[-lines:])


def phase_of(line: str) -> str | None:
    """The phase that a line of vLLM's log belongs to, if it tells."""
    return next((phase for phase, pattern in _PHASES if pattern.search(line)), None)


class Stopwatch:
    """Seconds by phase, told at each change and at least every ``every_s``."""

    def __init__(
        self,
        engine: str,
        *,
        clock: Callable[[], int],
        progress: Callable[[Progress], None],
        every_s: float = 2.0,
    ) -> None:
        self.phases_s: dict[str, float] = {}
        self.phase = CHECKPOINT
        self._engine = engine
        self._clock = clock
        self._progress = progress
        self._every_s = every_s
        self._start = self._phase_start = clock()
        self._told = 0
        self._tell("")

    @property
    def boot_s(self) -> float:
        """Seconds since the boot began."""
        return (self._clock() - self._start) / _SECOND_NS

    def enter(self, phase: str, line: str = "") -> bool:
        """Go to a phase; whether it is another one than before."""
        if phase == self.phase:
            return False
        self.close()
        self.phase = phase
        self._tell(line)
        return True

    def close(self) -> None:
        """Book the time of the phase that ends."""
        now = self._clock()
        spent = (now - self._phase_start) / _SECOND_NS
        self.phases_s[self.phase] = round(self.phases_s.get(self.phase, 0.0) + spent, 3)
        self._phase_start = now

    def tick(self, line: str) -> None:
        """Tell where the boot stands if nothing was told for a while."""
        if (self._clock() - self._told) / _SECOND_NS >= self._every_s:
            self._tell(line)

    def _tell(self, line: str) -> None:
        self._told = now = self._clock()
        phase_s = (now - self._phase_start) / _SECOND_NS
        told = Progress(
            engine=self._engine,
            phase=self.phase,
            phase_s=phase_s,
            boot_s=self.boot_s,
            line=line,
        )
        self._progress(told)
