"""What every measurement does, however it sends: records placed, an end recorded, trouble noticed.

Sending is in ``in_turn`` and ``load``; what each step must show is in ``expectation``.
"""

from __future__ import annotations

import gc
import hashlib
import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Generic, TypeVar

import msgspec

from pytest_llmperf import record
from pytest_llmperf.client import Client
from pytest_llmperf.measure.expectation import Expected
from pytest_llmperf.server import readiness
from pytest_llmperf.server.launch import RunningEngine
from pytest_llmperf.workload import Workload

GIVE_UP_AFTER = 3
"""Failed requests in a row after which the rest of a measurement is not sent."""

_TRANSIENT = (408, 425, 429)
"""Refusals that the next request may not get."""

Planned = TypeVar("Planned")


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """One arm's engine while it is measured: the running engine and a client of it."""

    arm: record.Arm
    running: RunningEngine
    client: Client


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What a measurement needs from the session, and nothing more."""

    add: Callable[[record.Record], None]
    """Takes each record as it happens."""
    clock: Callable[[], int]
    """Monotonic nanoseconds."""
    sleep: Callable[[float], None]
    tell: Callable[[str], None]
    """Takes a line of progress for a person."""
    seed: int
    """Of the nonces of this run."""
    watching: Callable[[str], AbstractContextManager[Callable[[], None]]] = lambda _: nullcontext(
        lambda: None
    )
    """Watches the machine around the measured window of the measurement with this id; what it
    gives looks at the machine once more, now."""


class Work(ABC, Generic[Planned]):
    """One measurement while it runs."""

    def __init__(
        self,
        start: record.Measurement,
        targets: Mapping[str, Target],
        around: Surroundings,
    ) -> None:
        self.start = start
        self.targets = targets
        self.around = around
        self.seed = _seed(around.seed, start)
        self._position = itertools.count()
        self._failed_in_a_row = 0

    def carry_out(self, workload: Workload) -> None:
        """Plan, then send; the records say how far it came, whatever happens.

        :raises UsageError: the plan does not fit the engine; nothing was sent or recorded.
        """
        planned = self.plan(workload)
        self.around.add(self.start)
        reason: str | None = "interrupted"
        try:
            with collector_at_rest():
                reason = self.send(planned)
        finally:
            self.around.add(
                record.MeasurementEnd(
                    measurement_id=self.start.measurement_id,
                    completed=reason is None,
                    reason=reason,
                )
            )

    @abstractmethod
    def plan(self, workload: Workload) -> Planned:
        """Lay out what will be sent, and check that it fits."""

    @abstractmethod
    def send(self, planned: Planned) -> str | None:
        """Send it; say why it stopped early, or ``None``."""

    def next_id(self) -> str:
        """The identity of the next request."""
        return f"{self.start.measurement_id}.{next(self._position)}"

    def placed(self, sent: record.Request, expected: Expected) -> record.Request:
        """The request's record with its place in this measurement."""
        step = expected.step
        return msgspec.structs.replace(
            sent,
            measurement_id=self.start.measurement_id,
            arm=step.arm,
            boot_id=self.targets[step.arm].arm.boot_id,
            role=step.role,
            block=step.block,
            position=int(sent.request_id.rsplit(".", 1)[1]),
            expected_cached_tokens=expected.hits,
            common_prefix_tokens=expected.common,
        )

    def trouble(
        self, sent: record.Request, target: Target, give_up_after: int = GIVE_UP_AFTER
    ) -> str | None:
        """Why nothing more should be sent after this answer, or ``None``."""
        if sent.failure is None:
            self._failed_in_a_row = 0
            return None
        self._failed_in_a_row += 1
        if not target.running.is_alive():
            return died(target)
        if is_final(sent.http_status):
            hint = readiness.flags_to_add(sent.failure.detail)
            return f"the server refuses this kind of request: {sent.failure.detail} {hint}".strip()
        if self._failed_in_a_row >= give_up_after:
            return (
                f"{self._failed_in_a_row} requests in a row failed, the last with "
                f"{sent.failure.kind}: {sent.failure.detail}"
            )
        return None


def is_final(status: int | None) -> bool:
    """Whether a refusal would come again: a 4xx other than one for being too slow or too many."""
    return status is not None and 400 <= status < 500 and status not in _TRANSIENT  # noqa: PLR2004 - HTTP's client errors


@contextmanager
def collector_at_rest() -> Iterator[None]:
    """Keep Python's garbage collector from pausing the client while it stamps.

    With pytest and its plugins in one process a full collection takes 40 ms and more, which is as
    long as several chunks of an answer.
    """
    was_on = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def died(target: Target) -> str:
    """Why a measurement stopped, where its engine is no more, and where to read on."""
    log = target.running.engine.log
    return f"the engine {target.arm.engine} died while it was measured" + (
        f" (its log: {log})" if log else ""
    )


def _seed(run_seed: int, start: record.Measurement) -> int:
    """Give every measurement its own nonces: what one test left cached must not warm another."""
    parts: tuple[object, ...] = (run_seed, start.gate, start.call, start.round, start.stage)
    if start.attempt > 1:
        parts = (*parts, start.attempt)
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:8])
