"""Whose CPU time it was: pytest and everything below it is ours, all else is foreign.

The host's time as a whole is in ``host``.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from pytest_llmperf.fitness import Other
from pytest_llmperf.machine import host

BUSIEST = 3
"""Foreign processes that are named."""

_LEAST_S = 0.05


class Process(NamedTuple):
    """One line of ``/proc/PID/stat``."""

    pid: int
    name: str
    parent: int
    started: int
    """In ticks since the machine's start; with the id it tells a process from its successor."""
    cpu_s: float


class Family:
    """The processes below some roots, and the CPU time that they have taken.

    A process that ends keeps the time it was last seen with.
    """

    def __init__(self, roots: Iterable[int], root: Path = host.ROOT) -> None:
        self._roots = set(roots)
        self._root = root
        self._ours: dict[tuple[int, int], float] = {}
        self._others: dict[tuple[int, int], float] = {}

    def meet(self) -> None:
        """Look at every process once: who belongs to us now, and what the others have taken."""
        everyone = processes(self._root)
        mine = below(self._roots, everyone)
        self._ours |= {
            (each.pid, each.started): each.cpu_s for each in everyone if each.pid in mine
        }
        self._others = {_key(each): each.cpu_s for each in everyone if each.pid not in mine}

    def cpu_s(self) -> float | None:
        """CPU seconds of those that are ours, as last seen; ``None`` if there are none."""
        for pid, started in list(self._ours):
            found = process(pid, self._root)
            if found is not None and found.started == started:
                self._ours[pid, started] = found.cpu_s
        return sum(self._ours.values()) if self._ours else None

    @property
    def pids(self) -> set[int]:
        """The ids of those that are ours."""
        return {pid for pid, _ in self._ours}

    def busiest(self) -> tuple[Other, ...]:
        """Meet everyone again; which foreign processes took most since the last time."""
        before = self._others
        everyone = processes(self._root)
        mine = below(self._roots, everyone)
        grown = [
            Other(pid=each.pid, name=each.name, cpu_s=each.cpu_s - before.get(_key(each), 0.0))
            for each in everyone
            if each.pid not in mine
        ]
        busy = sorted(grown, key=lambda each: -each.cpu_s)[:BUSIEST]
        self._ours |= {_key(each): each.cpu_s for each in everyone if each.pid in mine}
        return tuple(each for each in busy if each.cpu_s >= _LEAST_S)


def _key(each: Process) -> tuple[int, int]:
    return each.pid, each.started


def process(pid: int, root: Path = host.ROOT) -> Process | None:
    """One process; ``None`` if it is gone or may not be looked at."""
    try:
        text = (root / f"proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        head, _, rest = text.rpartition(")")
        fields = rest.split()
        taken = (int(fields[11]) + int(fields[12])) / host.ticks()
        return Process(pid, head.partition("(")[2], int(fields[1]), int(fields[19]), taken)
    except (OSError, ValueError, IndexError):
        return None


def processes(root: Path = host.ROOT) -> list[Process]:
    """Every process that can be seen."""
    try:
        names = [each.name for each in (root / "proc").iterdir() if each.name.isdigit()]
    except OSError:
        return []
    found = (process(int(name), root) for name in names)
    return [each for each in found if each is not None]


def below(roots: Iterable[int], everyone: Iterable[Process]) -> set[int]:
    """The roots and all processes that descend from them."""
    children: dict[int, list[int]] = {}
    for each in everyone:
        children.setdefault(each.parent, []).append(each.pid)
    found: set[int] = set()
    coming = list(roots)
    while coming:
        pid = coming.pop()
        if pid not in found:
            found.add(pid)
            coming += children.get(pid, [])
    return found


def ancestors(pid: int, root: Path = host.ROOT) -> list[int]:
    """A process's parent, its parent, and so on."""
    found: list[int] = []
    each = process(pid, root)
    while each is not None and each.parent > 0 and each.parent not in found:
        found.append(each.parent)
        each = process(each.parent, root)
    return found
