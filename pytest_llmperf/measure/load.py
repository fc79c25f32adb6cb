"""Requests that overlap: several streams, or arrivals by a schedule, in windows of load.

Which requests and when they are due is in ``load_plan``. They are sent on the client's own loop;
records are written and pages parsed by the waiting caller, so that nothing disturbs the stamps.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from pytest_llmperf import record
from pytest_llmperf.errors import EngineError, UsageError
from pytest_llmperf.load.plan import LoadWindow, load_windows
from pytest_llmperf.measure.connections import check_connections
from pytest_llmperf.measure.expectation import (
    Expected,
    Tokens,
    check_cache,
    check_context,
    check_provable,
)
from pytest_llmperf.measure.reading import Meter
from pytest_llmperf.measure.work import GIVE_UP_AFTER, Surroundings, Target, Work, died
from pytest_llmperf.units import seconds
from pytest_llmperf.workload import Workload

if TYPE_CHECKING:
    import anyio

SAMPLE_S = 0.5
"""From one reading of the server's page to the next while a load runs; each costs the server."""


LONGEST_S = 86_400.0
"""How long the schedule of one measurement may last."""


class _Planned(msgspec.Struct, frozen=True, kw_only=True):
    """A window with what each of its steps must show."""

    window: LoadWindow
    primes: list[Expected]
    steps: list[Expected]

    @property
    def is_warmup(self) -> bool:
        """Whether its answers are not used."""
        return self.window.steps[0].role == "warmup"


class UnderLoad(Work[list[_Planned]]):
    """A measurement whose requests overlap."""

    def __init__(
        self, start: record.Measurement, targets: Mapping[str, Target], around: Surroundings
    ) -> None:
        super().__init__(start, targets, around)
        self._meter = Meter(start, targets, around)

    def plan(self, workload: Workload) -> list[_Planned]:
        """Lay out the windows; check context, cache and connections before anything is sent."""
        for target in self.targets.values():
            check_provable(target, self.start.min_cached_share)
        denominators = {name: each.arm.denominator for name, each in self.targets.items()}
        windows = load_windows(
            workload,
            denominators,
            turns=self.start.turns,
            windows=self.start.windows or 1,
            warmup=self.start.warmup,
            seed=self.seed,
        )
        for each in windows:
            engine = self.targets[each.arm].running.engine
            check_connections(
                len(each.starts or each.steps),
                server_pid=None if engine.attached else engine.pid,
            )
        self._check_length(windows)
        prompts = sum(len(each.primes) + len(each.steps) for each in windows)
        self.around.tell(f"tokenising {prompts} prompts")
        tokens = Tokens()
        return [self._expected(window, tokens) for window in windows]

    def _check_length(self, windows: Sequence[LoadWindow]) -> None:
        """Say how long the schedules last.

        :raises UsageError: that is longer than a day.
        """
        whole_s = sum(each.due[-1] for each in windows if each.due) / 1e9
        if whole_s > LONGEST_S:
            raise UsageError(
                "The schedule of this load lasts more than a day.",
                f"From the first request due to the last one it is {whole_s / 3600:,.0f} hours.",
                "Look at the timestamps of the traffic, or plan fewer turns or a higher rate.",
            )
        if whole_s:
            self.around.tell(f"requests are due over {seconds(whole_s)} in all")

    def _expected(self, window: LoadWindow, tokens: Tokens) -> _Planned:
        target = self.targets[window.arm]
        primes = [tokens.expect(target, step) for step in window.primes]
        steps = [tokens.expect(target, step) for step in window.steps]
        check_context(target, [*primes, *steps])
        if primes:
            held = sum(each.new_tokens for each in [*primes, *steps])
            check_cache(target, held, "One window")
        return _Planned(window=window, primes=primes, steps=steps)

    def send(self, planned: list[_Planned]) -> str | None:
        """Send window after window; return why it stopped early, or ``None``."""
        warmups = [each for each in planned if each.is_warmup]
        inside = [each for each in planned if not each.is_warmup]
        reason = self._send_all(warmups, "warming up")
        if reason is not None:
            return reason
        with self.around.watching(self.start.measurement_id):
            self._meter.read("before")
            reason = self._send_all(inside, "measuring")
            self._meter.read("after")
        return reason

    def _send_all(self, planned: Sequence[_Planned], doing: str) -> str | None:
        for number, each in enumerate(planned, start=1):
            doing_this = f"{doing}: window {number} of {len(planned)}"
            reason = self._prime(each, doing_this) or self._load(each, doing_this)
            if reason is not None:
                return reason
        return None

    def _prime(self, planned: _Planned, doing: str) -> str | None:
        """Fill the cache, one request after another."""
        for number, each in enumerate(planned.primes, start=1):
            self.around.tell(f"{doing}: priming {number} of {len(planned.primes)}")
            alone = LoadWindow(
                arm=each.step.arm,
                block=each.step.block,
                primes=(),
                steps=(each.step,),
                starts=(0,),
            )
            reason = self._load(_Planned(window=alone, primes=[], steps=[each]), "")
            if reason is not None:
                return reason
        return None

    def _load(self, planned: _Planned, doing: str) -> str | None:
        """Send one window; records are written while it runs, also those of an interrupted one."""
        target = self.targets[planned.window.arm]
        volley = _Volley(planned, target, self.around.clock, self.next_id)
        is_measured = bool(doing) and not planned.is_warmup
        if is_measured and target.running.engine.facts.metrics is not False:
            volley.samples = deque()
        try:
            target.client.together(volley.run, meanwhile=partial(self._keep, volley, doing))
        finally:
            self._keep(volley, doing)
            for left in target.client.cancelled:
                if left.request_id in volley.sent:
                    self.around.add(self.placed(left, volley.sent.pop(left.request_id)))
        return volley.stopped or _death(volley)

    def _keep(self, volley: _Volley, doing: str) -> None:
        """Write what has come since the last time, and look whether to go on."""
        before = volley.answered
        while volley.finished:
            sent, stream = volley.finished.popleft()
            expected = volley.sent.pop(sent.request_id)
            placed = self.placed(sent, expected)
            self.around.add(msgspec.structs.replace(placed, stream=stream))
            volley.answered += 1
            if expected.step.role != "warmup":
                self._meter.count(volley.target.arm.boot_id, sent)
            if volley.may_give_up:
                reason = self.trouble(sent, volley.target, volley.give_up_after)
                volley.stopped = volley.stopped or reason
        while volley.samples:
            self._meter.record_page(volley.target, *volley.samples.popleft())
        if doing and volley.answered != before:
            total, flying = len(volley.planned.steps), len(volley.sent)
            self.around.tell(f"{doing}: {volley.answered} of {total} answered, {flying} in flight")


def _death(volley: _Volley) -> str | None:
    """That the engine died under a burst, which is sent whole, whatever fails; else ``None``."""
    if volley.may_give_up or volley.target.running.is_alive():
        return None
    return died(volley.target)


class _Volley:
    """One window while it is sent, on the client's loop."""

    def __init__(
        self,
        planned: _Planned,
        target: Target,
        clock: Callable[[], int],
        next_id: Callable[[], str],
    ) -> None:
        self.planned = planned
        self.target = target
        self.sent: dict[str, Expected] = {}
        """In flight, by identity."""
        self.finished: deque[tuple[record.Request, int | None]] = deque()
        """Answered and not yet written, with the stream that sent it."""
        self.samples: deque[tuple[int, int, str, str | None]] | None = None
        """Pages that were read: asked, read, text, problem; ``None``: none shall be."""
        self.answered = 0
        self.stopped: str | None = None
        self._failed_in_a_row = 0
        self._clock = clock
        self._next_id = next_id

    @property
    def may_give_up(self) -> bool:
        """Whether failures end the window; of a burst every fate is counted."""
        return self.target.arm.denominator.arrival != "burst"

    @property
    def give_up_after(self) -> int:
        """Failures in a row that mean more than one bad moment of all streams."""
        return max(GIVE_UP_AFTER, 2 * len(self.planned.window.starts))

    @property
    def is_over(self) -> bool:
        """Whether nothing more is sent: the caller says so, or will as soon as it looks.

        A dead engine refuses faster than the caller looks, which would be sent all the rest.
        """
        has_given_up = self.may_give_up and self._failed_in_a_row >= self.give_up_after
        return self.stopped is not None or has_given_up

    async def run(self) -> None:
        """Send everything, and read the server's page beside it."""
        import anyio  # noqa: PLC0415 - loaded on use, not on import

        began_ns = self._clock()
        async with anyio.create_task_group() as beside:
            if self.samples is not None:
                beside.start_soon(self._sample, self.samples)
            async with anyio.create_task_group() as sending:
                self._start(sending, began_ns)
            beside.cancel_scope.cancel()

    def _start(self, sending: anyio.abc.TaskGroup, began_ns: int) -> None:
        window = self.planned.window
        if window.due is not None:
            for each, due_ns in zip(self.planned.steps, window.due, strict=True):
                sending.start_soon(self._at, each, began_ns + due_ns)
            return
        rest = iter(self.planned.steps)
        several = len(window.starts) > 1
        for number, start_ns in enumerate(window.starts):
            stream = number if several else None
            sending.start_soon(self._stream, stream, began_ns + start_ns, rest)

    async def _at(self, expected: Expected, due_ns: int) -> None:
        """One request when it is due, whatever became of those before."""
        await self._until(due_ns)
        if not self.is_over:
            await self._one(expected, None, due_ns)

    async def _stream(self, stream: int | None, start_ns: int, rest: Iterator[Expected]) -> None:
        """One stream of a closed loop: the next request as soon as the last is answered."""
        await self._until(start_ns)
        due_ns: int | None = start_ns
        for each in rest:
            if self.is_over:
                return
            await self._one(each, stream, due_ns)
            due_ns = None

    async def _one(self, expected: Expected, stream: int | None, due_ns: int | None) -> None:
        identity = self._next_id()
        self.sent[identity] = expected
        sent = await self.target.client.asend(
            expected.step.request, request_id=identity, due_ns=due_ns
        )
        self._failed_in_a_row = self._failed_in_a_row + 1 if sent.failure else 0
        self.finished.append((sent, stream))

    async def _until(self, at_ns: int) -> None:
        import anyio  # noqa: PLC0415 - loaded on use, not on import

        while (left_ns := at_ns - self._clock()) > 0:  # noqa: ASYNC110 - time is what it waits for
            await anyio.sleep(left_ns / 1e9)

    async def _sample(self, samples: deque[tuple[int, int, str, str | None]]) -> None:
        """Read the server's page again and again, until cancelled."""
        at_ns = self._clock()
        while True:
            asked_ns = self._clock()
            try:
                client = self.target.client
                text, problem = await client.aget_text(client.metrics_page), None
            except EngineError as error:
                text, problem = "", error.in_a_line
            samples.append((asked_ns, self._clock(), text, problem))
            at_ns = max(at_ns + round(SAMPLE_S * 1e9), self._clock())
            await self._until(at_ns)
