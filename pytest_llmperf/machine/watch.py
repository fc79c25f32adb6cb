"""Watching the machine while something is measured: once before, every second, once after.

What is read is in ``host``, ``family`` and ``gpu``; what it means is in ``load`` and ``proof``.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pytest_llmperf.fitness import Canary, MachineState, Other, Precondition, When
from pytest_llmperf.machine import canary, host
from pytest_llmperf.machine.family import Family
from pytest_llmperf.machine.gpu import Gpus

EVERY_S = 1.0
"""Between two samples; one costs well under a millisecond."""

Add = Callable[[MachineState | Canary | Precondition], None]


class Watch:
    """Watches this machine.

    :param add: takes each record as it is made, from a thread of its own too.
    :param clock: monotonic nanoseconds.
    :param ours: the process whose descendants are ours; ``None`` where the engines are not ours
        to look into, and nobody can tell their CPU time from that of strangers.
    """

    def __init__(
        self,
        add: Add,
        *,
        clock: Callable[[], int],
        ours: int | None,
        root: Path = host.ROOT,
        gpus: Gpus | None = None,
        every_s: float = EVERY_S,
    ) -> None:
        self._add = add
        self._clock = clock
        self._ours = ours
        self._root = root
        self._every_s = every_s
        self._cores = host.our_cores()
        self._gpus = gpus or Gpus(root=root)

    @contextmanager
    def watching(self, precondition: Precondition) -> Iterator[Callable[[], None]]:
        """Record the machine around and during what happens inside.

        It gives what records it once more, now: the last CPU time of a process of ours must be
        seen before it is killed, or it counts as a stranger's.

        :raises EvidenceError: a sample could not be written; told once the inside has ended.
        """
        identity = precondition.measurement_id
        self._add(precondition)
        self._add(canary.sing(identity, "before", self._clock))
        family = Family([os.getpid() if self._ours is None else self._ours], self._root)
        family.meet()
        self._add(self.state(identity, "before", family))

        def look() -> None:
            self._add(self.state(identity, "during", family))

        sampler = _Sampler(look, self._every_s)
        sampler.start()
        try:
            yield look
        finally:
            sampler.stop()
            others = family.busiest()
            self._add(self.state(identity, "after", family, others=others))
            self._add(canary.sing(identity, "after", self._clock))
        if sampler.error is not None:
            raise sampler.error

    def state(
        self, identity: str, when: When, family: Family, others: tuple[Other, ...] | None = None
    ) -> MachineState:
        """The machine now."""
        root, cores = self._root, self._cores
        at_ns = self._clock()
        spent = host.cpu_time(root, cores)
        return MachineState(
            measurement_id=identity,
            when=when,
            at_ns=at_ns,
            cores=None if spent is None else spent.cores,
            busy_s=None if spent is None else spent.busy_s,
            steal_s=None if spent is None else spent.steal_s,
            ours_s=None if self._ours is None else family.cpu_s(),
            stalled_s=host.stalled_s(root),
            load=host.load(root),
            mhz=host.mhz(root, cores),
            available_bytes=host.available_bytes(root),
            swapped_bytes=host.swapped_bytes(root),
            throttle_events=host.throttle_events(root),
            zones_c=host.zones_c(root),
            gpus=self._gpus.read(self._gpu_family(family)),
            gpu_problem=self._gpus.problem,
            others=others if self._ours is not None else None,
        )

    def _gpu_family(self, family: Family) -> set[int] | None:
        """Our processes by the numbers that the GPU's driver knows them by.

        The driver counts in the first namespace; in a container ours have other numbers there.
        """
        known = self._ours is not None and host.is_first_pid_namespace(self._root)
        return family.pids if known else None


class _Sampler(threading.Thread):
    """Calls one thing again and again until it is stopped; an error ends it and is kept."""

    def __init__(self, sample: Callable[[], None], every_s: float) -> None:
        super().__init__(name="machine", daemon=True)
        self._sample = sample
        self._every_s = every_s
        self._over = threading.Event()
        self.error: Exception | None = None

    def run(self) -> None:
        """Sample until told to stop."""
        try:
            while not self._over.wait(self._every_s):
                self._sample()
        except Exception as error:  # noqa: BLE001 - handed to the thread that measures
            self.error = error

    def stop(self) -> None:
        """Stop, and wait for the sample in hand."""
        self._over.set()
        self.join()
