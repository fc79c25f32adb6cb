"""Engines shared by the tests of a run: one boot for each distinct configuration and round.

How one is booted is in ``launch``, attached in ``attach``; which test may use which is decided by
its fixtures.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from pytest_llmperf import record
from pytest_llmperf.errors import EngineDied, LlmperfError, NotAttached
from pytest_llmperf.server import ownership
from pytest_llmperf.server.attach import attach
from pytest_llmperf.server.bootlog import Progress
from pytest_llmperf.server.launch import RunningEngine, launch
from pytest_llmperf.spec import EngineSpec

__all__ = ["EnginePool", "NotAttached"]

_GIB = 2**30

_DYING_NS = 5_000_000_000
"""How long a process that was sent SIGKILL may take to be seen as ended."""

_Key = tuple[str, int]
_Lifetime = AbstractContextManager[RunningEngine]


class _Slot:
    """One engine that is up, and the context that ends it."""

    def __init__(self, lifetime: _Lifetime, running: RunningEngine) -> None:
        self.lifetime = lifetime
        self.running = running


class _Opening(threading.Thread):
    """One engine on its way up, in a thread of its own."""

    def __init__(self, key: _Key, spec: EngineSpec, begin: Callable[[_Opening], _Lifetime]) -> None:
        super().__init__(name=f"boot {spec.name}", daemon=True)
        self.key = key
        self.cancel = threading.Event()
        self.progress: queue.SimpleQueue[Progress] = queue.SimpleQueue()
        self.lifetime: _Lifetime | None = None
        self.running: RunningEngine | None = None
        self.error: BaseException | None = None
        self._begin = begin

    def run(self) -> None:
        """Boot; what comes of it stands in ``running`` or ``error``."""
        try:
            self.lifetime = self._begin(self)
            self.running = self.lifetime.__enter__()
        except BaseException as error:  # noqa: BLE001 - handed to the thread that waits
            self.error = error


class EnginePool:
    """Owns the engines of one run; nobody else starts or stops one.

    :param resident: how many may be up at once.
    :param folder: holds a folder for each boot.
    :param clock: monotonic nanoseconds.
    :param attachments: addresses by engine name; where there are any, nothing is booted.
    :param metrics: where their metrics pages are, for those that have them at another address.
    :param on_boot: told of each engine that became ready.
    :param on_end: told of each end of one.
    :param before_open: called before engines boot or are attached; what it raises, nobody boots.
    """

    def __init__(
        self,
        *,
        resident: int,
        folder: Path,
        clock: Callable[[], int],
        progress: Callable[[Progress], None],
        attachments: dict[str, str],
        on_boot: Callable[[record.Engine], None],
        on_end: Callable[[record.EngineEnd], None],
        metrics: Mapping[str, str] | None = None,
        sleep: Callable[[float], object] = time.sleep,
        before_open: Callable[[], None] = lambda: None,
    ) -> None:
        self.resident = resident
        self._folder = folder
        self._clock = clock
        self._progress = progress
        self._attachments = attachments
        self._metrics = metrics or {}
        self._on_boot = on_boot
        self._on_end = on_end
        self._sleep = sleep
        self._before_open = before_open
        self._slots: dict[_Key, _Slot] = {}  # the one used longest ago comes first
        self._failures: dict[_Key, LlmperfError] = {}
        self._deaths: dict[_Key, int] = {}
        self._boots = 0
        self._orphans: dict[int, int | None] = {}

    def check_attached(self, name: str) -> None:
        """See that an engine can be had where servers are attached.

        :raises NotAttached: it is not among them; the test that wants it is to be skipped.
        """
        if self._attachments and name not in self._attachments:
            attached = ", ".join(f"{each}={url}" for each, url in self._attachments.items())
            raise NotAttached(
                f"The engine {name} is not attached.",
                f"Attached are: {attached}.",
                f"Add --llmperf-attach {name}=URL to measure it too.",
            )

    def lease(self, spec: EngineSpec, round_number: int = 0) -> RunningEngine:
        """The engine for a spec, booted when it is not up; one found dead is booted once more.

        :raises NotAttached: servers are attached and this one is not among them.
        :raises EngineError: it could not be booted, now or when it was asked for before.
        """
        return self.lease_many([spec], round_number)[0]

    def lease_many(self, specs: Sequence[EngineSpec], round_number: int = 0) -> list[RunningEngine]:
        """The engines for several specs, as many as fit, booted at the same time.

        With ``resident`` below their number the first ones come up; lease the others in turn.

        :raises NotAttached: servers are attached and one of these is not among them.
        :raises EngineError: one of them could not be booted.
        """
        wanted = {self._key(spec, round_number): spec for spec in specs}
        if not self._attachments:
            wanted = dict(list(wanted.items())[: self.resident])
        ended = self._end_other_rounds(round_number)
        missing = {key: spec for key, spec in wanted.items() if not self._is_up(key, spec)}
        if missing:
            self._before_open()
            self._make_room(keep=set(wanted), coming=len(missing), ended=ended)
            self._require_memory_for_all(missing)
            self._open(missing, round_number)
        return [self._use(key) for key in wanted]

    def put_out(self, running: RunningEngine) -> None:
        """End one engine whose death was meant: it may be leased again, and boots again then.

        :raises EngineError: a process of it is still alive afterwards.
        """
        deadline = self._clock() + _DYING_NS
        while running.is_alive() and self._clock() < deadline:
            self._sleep(0.02)
        for key in [key for key, slot in self._slots.items() if slot.running is running]:
            self._end(key)

    def close(self) -> None:
        """End every engine, whatever happens on the way; may be called again.

        :raises EngineError: one of them would not end; the others have been ended all the same.
        """
        problem: BaseException | None = None
        alive = {key: slot.running.is_alive() for key, slot in self._slots.items()}
        for slot in self._slots.values():
            slot.running.let_go()
        while self._slots:
            try:
                key = next(iter(self._slots))
                self._end(key, died=not alive[key])
            except BaseException as error:  # noqa: BLE001 - an interrupt ends them all the same
                problem = problem or error
        if problem is not None:
            raise problem

    def _key(self, spec: EngineSpec, round_number: int) -> _Key:
        self.check_attached(spec.name)
        key = f"attached {spec.name}" if self._attachments else spec.key
        failure = self._failures.get((key, round_number))
        if failure is not None:
            raise failure.with_traceback(None)
        return key, round_number

    def _use(self, key: _Key) -> RunningEngine:
        slot = self._slots.pop(key)
        self._slots[key] = slot
        return slot.running

    def _is_up(self, key: _Key, spec: EngineSpec) -> bool:
        """Whether it is up; one that has died is laid to rest, and the second time for good."""
        slot = self._slots.get(key)
        if slot is None:
            return False
        if slot.running.is_healthy():
            return True
        how = slot.running.how_it_ended()
        self._deaths[key] = self._deaths.get(key, 0) + 1
        self._end(key, died=True)
        if self._deaths[key] > 1:
            self._failures[key] = EngineDied(
                f"Engine {spec.name} died twice while it was in use; it is not booted again.",
                f"The second time it {how}",
                "What was measured on it is void. Find the cause in its logs.",
            )
            raise self._failures[key]
        return False

    def _end(self, key: _Key, *, died: bool | None = None) -> None:
        """End one engine and tell how its life went.

        :param died: whether it had come to its end by itself; looked at here when not given.
        """
        slot = self._slots.pop(key)
        running, noticed = slot.running, self._clock()
        dead = not running.is_alive() if died is None else died
        detail = running.how_it_ended() if dead else None
        try:
            slot.lifetime.__exit__(None, None, None)
        except ownership.Orphaned as error:
            self._orphans |= error.born
            raise
        finally:
            end = record.EngineEnd(
                boot_id=running.engine.boot_id,
                ending="died" if dead else "stopped",
                exit_code=running.exit_code,
                detail=detail,
                at_ns=noticed,
            )
            self._on_end(end)

    def _end_other_rounds(self, round_number: int) -> int:
        others = [each for each in self._slots if each[1] != round_number]
        for key in others:
            self._end(key)
        return len(others)

    def _make_room(self, *, keep: set[_Key], coming: int, ended: int) -> None:
        """End the engines used longest ago until the ones to come fit; see memory come back.

        :param ended: engines that have been ended for the same reason already.
        """
        if self._attachments:
            return
        idle = [key for key in self._slots if key not in keep]
        while idle and len(self._slots) + coming > self.resident:
            self._end(idle.pop(0))
            ended += 1
        if ended and self.resident == 1:
            self._see_memory_back()

    def _see_memory_back(self) -> None:
        """Wait until what the ended engine held is free again, and say how long that took."""
        before = ownership.available_bytes()
        waited_s = ownership.wait_until_memory_is_level(clock=self._clock, sleep=self._sleep)
        back = (ownership.available_bytes() - before) / _GIB
        self._progress(
            Progress(
                engine="the next engine",
                phase=f"memory level again ({back:+.1f} GiB)",
                phase_s=waited_s,
                boot_s=waited_s,
            )
        )

    def _require_memory_for_all(self, missing: dict[_Key, EngineSpec]) -> None:
        """Engines that boot side by side look at the same free memory: their needs add up."""
        needed = [each.min_available_bytes for each in missing.values()]
        if len(needed) > 1 and not self._attachments and any(needed):
            names = " and ".join(each.name for each in missing.values())
            ownership.require_available(names, sum(each or 0 for each in needed))

    def _open(self, missing: dict[_Key, EngineSpec], round_number: int) -> None:
        """Bring engines up side by side, and tell of each in this thread."""
        ownership.refuse_orphans(self._orphans)
        opening = [
            _Opening(key, spec, self._lifetime(spec, round_number)) for key, spec in missing.items()
        ]
        try:
            for each in opening:
                each.start()
            while any(each.is_alive() for each in opening):
                self._tell(opening)
                self._sleep(0.05)
            self._tell(opening)
        finally:
            self._settle(opening)
        for each in opening:
            if each.error is not None:
                raise each.error

    def _settle(self, opening: list[_Opening]) -> None:
        """Take in what came up, and what did not; after an interrupt, end what is on its way."""
        for each in opening:
            each.cancel.set()
        for each in opening:
            if each.ident is not None:
                each.join()
            if each.running is not None and each.lifetime is not None:
                self._slots[each.key] = _Slot(each.lifetime, each.running)
                self._on_boot(each.running.engine)
            elif isinstance(each.error, LlmperfError):
                self._failures[each.key] = each.error
            if isinstance(each.error, ownership.Orphaned):
                self._orphans |= each.error.born

    def _tell(self, opening: list[_Opening]) -> None:
        for each in opening:
            while not each.progress.empty():
                self._progress(each.progress.get())

    def _lifetime(self, spec: EngineSpec, round_number: int) -> Callable[[_Opening], _Lifetime]:
        if self._attachments:
            url = self._attachments[spec.name]
            return lambda _: attach(
                spec.name,
                url,
                declared=spec.declared,
                tools=spec.tools,
                subject=spec.subject,
                profile=spec.profile,
                round_number=round_number,
                metrics=self._metrics.get(spec.name),
            )
        self._boots += 1
        folder = self._folder / f"{self._boots:02}-{spec.name}"
        return lambda opening: launch(
            spec,
            folder=folder,
            clock=self._clock,
            progress=opening.progress.put,
            round_number=round_number,
            cancelled=opening.cancel.is_set,
        )
