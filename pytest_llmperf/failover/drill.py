"""A server made to fail while streams keep asking: it leaves records, never a number.

Who takes over is in the room's ``Failover``; how a signal reaches a server's processes is in
``server``; what the records come to is in the room ``handover``.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from signal import Signals
from typing import Literal, Protocol

import msgspec

from pytest_llmperf import counters, record
from pytest_llmperf.client import Client
from pytest_llmperf.client.flight import Flight
from pytest_llmperf.errors import EngineError
from pytest_llmperf.failover import Failover
from pytest_llmperf.failover.names import pin
from pytest_llmperf.planned import PlannedRequest

FLOWING = 4
"""Reads of an answer's body after which its tokens flow: the first one or two bear none."""

FLOW_S = 30.0
"""How long all streams may take to be in the middle of an answer; then some of them are enough."""

TAKE_OVER_S = 180.0
"""How long the next server may take, after the fault, to answer as many as are planned."""

THAW_S = 10.0
"""How long a thawed server is listened to."""

LOST_EACH = 2
"""Asks lost in a row for each stream after which nobody is asked any more."""

_SETTLE_S = 3.0
_PAGE_S = 5.0

_SIGNALS = {"killed": Signals.SIGKILL, "frozen": Signals.SIGSTOP, "thawed": Signals.SIGCONT}


class Victim(Protocol):
    """A server whose processes can be reached by a signal."""

    def signal(self, number: Signals) -> tuple[int, ...]:
        """Send it to all of them; give their ids."""


class Station(msgspec.Struct, frozen=True, kw_only=True):
    """One server in the order of the failover."""

    arm: record.Arm
    url: str
    model: str
    token_ids: bool = True
    metrics: bool = True


class Orders(msgspec.Struct, frozen=True, kw_only=True):
    """What is to happen."""

    measurement_id: str
    streams: int
    requests: int
    """That the next servers must answer after the fault."""
    warmup: int
    fault: Literal["killed", "frozen"]
    stall_s: float
    timeout_s: float = 120.0
    planned: Callable[[int], PlannedRequest]
    """The request with this number."""


class Drill:
    """One fault under load. ``run`` once.

    :param add: takes each record; called from another thread while the load runs.
    :param clock: monotonic nanoseconds.
    :param tell: takes a line of progress.
    """

    def __init__(
        self,
        orders: Orders,
        stations: Sequence[Station],
        victim: Victim,
        *,
        add: Callable[[record.Record], None],
        clock: Callable[[], int],
        tell: Callable[[str], None],
    ) -> None:
        self._orders = orders
        self._stations = stations
        self._victim = victim
        self._add = add
        self._clock = clock
        self._tell = tell
        self._out: deque[record.Record] = deque()
        self._position = itertools.count()
        self._asked = itertools.count()
        self._place_of: dict[str, tuple[int, int]] = {}
        self._flights: dict[int, Flight] = {}
        self._first_answered: set[int] = set()
        self._finished_before: dict[int, float | None] = {}
        self._completed: dict[int, int] = {}
        self._taken_over = 0
        self._lost_in_a_row = 0
        self._planted = False
        self._is_over = False
        self._reason: str | None = None

    def run(self) -> str | None:
        """Carry it out; say why it measured nothing, or ``None``.

        An interrupt leaves after the servers were thawed and everything seen was recorded.
        """
        try:
            asyncio.run(self._run())
        finally:
            if self._orders.fault == "frozen" and self._planted:
                self._victim.signal(Signals.SIGCONT)  # once more does no harm, and never none
            self._flush()
        return self._reason

    async def _run(self) -> None:
        endpoints = [await self._pinned(place) for place in range(len(self._stations))]
        async with AsyncExitStack() as stack:
            clients = [
                await stack.enter_async_context(self._client(station, endpoint.pinned))
                for station, endpoint in zip(self._stations, endpoints, strict=True)
            ]
            writing = asyncio.create_task(self._write())
            try:
                self._reason = await self._carry_out(clients)
            finally:
                writing.cancel()

    async def _pinned(self, place: int) -> record.Endpoint:
        station = self._stations[place]
        start = record.Endpoint(
            measurement_id=self._orders.measurement_id,
            boot_id=station.arm.boot_id,
            place=place,
            url=station.url,
        )
        endpoint = await pin(start, clock=self._clock)
        self._out.append(endpoint)
        return endpoint

    def _client(self, station: Station, address: str | None) -> Client:
        return Client(
            station.url,
            model=station.model,
            timeout_s=self._orders.timeout_s,
            stall_s=self._orders.stall_s,
            connect_s=self._orders.stall_s,
            token_ids=station.token_ids,
            address=address,
            clock=self._clock,
        )

    async def _carry_out(self, clients: Sequence[Client]) -> str | None:
        for place, client in enumerate(clients):
            problem = await self._warm_up(place, client)
            if problem is not None:
                return problem
        for place, client in enumerate(clients):
            await self._read(place, client, "before")
        route = Failover(clients, keep=self._keep, listen=self._orders.fault == "frozen")
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._plant())
                for stream in range(self._orders.streams):
                    group.create_task(self._stream(stream, route))
            if self._orders.fault == "frozen" and self._planted:
                await self._strike("thawed")
                self._tell("listening to what the thawed server still says")
                await route.hear_out(THAW_S)
        finally:
            await route.leave()
        for place, client in enumerate(clients):
            await self._read(place, client, "after")
        return self._reason

    async def _warm_up(self, place: int, client: Client) -> str | None:
        """Ask each server once or twice before, so that the next one is not cold in itself."""
        for number in range(self._orders.warmup):
            self._tell(f"warming up server {place + 1}: request {number + 1}")
            name = f"{self._orders.measurement_id}.w{place}.{number}"
            sent = await client.asend(self._next(), request_id=name)
            self._out.append(self._placed(place, sent, role="warmup"))
            if sent.failure is not None:
                engine = self._stations[place].arm.engine
                return (
                    f"{engine} failed before the fault: {sent.failure.kind}: {sent.failure.detail}"
                )
        return None

    def _next(self) -> PlannedRequest:
        return self._orders.planned(next(self._asked))

    async def _stream(self, stream: int, route: Failover) -> None:
        """One stream of the closed loop: it asks again as soon as it is answered."""
        for number in itertools.count():
            if self._is_over:
                return
            name = f"{self._orders.measurement_id}.{stream}.{number}"
            self._place_of[name] = (stream, number)
            answer = await route.ask(self._next(), ask_id=name, watch=partial(self._watch, stream))
            self._count(stream, None if answer is None else answer[0])

    def _watch(self, stream: int, place: int, flight: Flight) -> None:
        if place == 0:
            self._flights[stream] = flight

    def _count(self, stream: int, place: int | None) -> None:
        if place is None:
            self._lost_in_a_row += 1
            if self._lost_in_a_row >= LOST_EACH * self._orders.streams:
                self._is_over = True
            return
        self._lost_in_a_row = 0
        if place == 0:
            self._first_answered.add(stream)
        elif self._planted:
            self._taken_over += 1
            self._tell(f"the next server answered {self._taken_over} of {self._orders.requests}")
            self._is_over = self._is_over or self._taken_over >= self._orders.requests

    async def _plant(self) -> None:
        """Make the first server fail once tokens flow in all streams; end the load in time."""
        begun = self._clock()
        while not self._may_strike((self._clock() - begun) / 1e9):
            if self._is_over:
                self._reason = "every server failed before the fault was planted"
                return
            if (self._clock() - begun) / 1e9 > 2 * FLOW_S:
                self._is_over, self._reason = True, "tokens never flowed: no fault was planted"
                return
            await asyncio.sleep(0.002)
        await self._strike(self._orders.fault)
        self._planted = True
        self._tell(f"{self._stations[0].arm.engine} {self._orders.fault} under load")
        planted = self._clock()
        while not self._is_over:
            self._is_over = (self._clock() - planted) / 1e9 > TAKE_OVER_S
            await asyncio.sleep(0.01)

    def _may_strike(self, waited_s: float) -> bool:
        flowing = sum(not each.is_over and each.reads >= FLOWING for each in self._flights.values())
        wanted = self._orders.streams if waited_s < FLOW_S else 1
        answered = len(self._first_answered)
        return flowing >= wanted and answered >= wanted

    async def _strike(self, kind: Literal["killed", "frozen", "thawed"]) -> None:
        begun_ns = self._clock()
        pids = await asyncio.to_thread(self._victim.signal, _SIGNALS[kind])
        self._out.append(
            record.Fault(
                measurement_id=self._orders.measurement_id,
                boot_id=self._stations[0].arm.boot_id,
                kind=kind,
                begun_ns=begun_ns,
                at_ns=self._clock(),
                pids=pids,
            )
        )

    def _keep(self, place: int, made: record.Request) -> None:
        if made.completed:
            self._completed[place] = self._completed.get(place, 0) + 1
        stream, _ = self._place_of[made.attempt_of or ""]
        self._out.append(self._placed(place, made, stream=stream))

    def _placed(self, place: int, made: record.Request, **fields: object) -> record.Request:
        arm = self._stations[place].arm
        return msgspec.structs.replace(
            made,
            measurement_id=self._orders.measurement_id,
            arm=arm.name,
            boot_id=arm.boot_id,
            position=next(self._position),
            **fields,
        )

    async def _read(self, place: int, client: Client, when: Literal["before", "after"]) -> None:
        """Read a server's counters once it is idle and has counted what it answered."""
        deadline = self._clock() + int(_SETTLE_S * 1e9)
        while True:
            page = await self._page(place, client, when)
            if self._is_settled(place, page, when) or self._clock() > deadline:
                break
            await asyncio.sleep(0.05)
        if when == "before":
            self._finished_before[place] = page.requests_finished
        self._out.append(page)

    def _is_settled(self, place: int, page: record.Counters, when: str) -> bool:
        if not page.readable:
            return True
        idle = not page.requests_running and not page.requests_waiting
        before, now = self._finished_before.get(place), page.requests_finished
        if when == "before" or before is None or now is None:
            return idle
        return idle and now - before >= self._completed.get(place, 0)

    async def _page(
        self, place: int, client: Client, when: Literal["before", "after"]
    ) -> record.Counters:
        asked_ns, problem, text = self._clock(), None, ""
        if not self._stations[place].metrics:
            problem = "the server has no metrics page"
        else:
            try:
                text = await client.aget_text("/metrics", timeout_s=_PAGE_S)
            except EngineError as error:
                problem = error.in_a_line
        page = counters.parse(
            text,
            measurement_id=self._orders.measurement_id,
            boot_id=self._stations[place].arm.boot_id,
            when=when,
            at_ns=self._clock(),
            model=self._stations[place].model,
        )
        page = msgspec.structs.replace(page, asked_ns=asked_ns)
        return msgspec.structs.replace(page, problem=problem) if problem else page

    async def _write(self) -> None:
        """Write what has come, in a thread of its own, so that no stamp waits for the disk."""
        while True:
            await asyncio.sleep(0.1)
            await asyncio.to_thread(self._flush)

    def _flush(self) -> None:
        while self._out:
            self._add(self._out.popleft())
