"""A layer above the client: servers in an order, and requests that are sent again when one fails.

Looking names up is in ``names``; making a server fail under load is in ``drill``; what the records
of it say is in the room ``handover``.

    async with Client(first, model=...) as one, Client(second, model=...) as two:
        route = Failover([one, two], keep=keep)
        answer = await route.ask(planned, ask_id="1")
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from pytest_llmperf.client import Client
from pytest_llmperf.client.flight import Flight
from pytest_llmperf.planned import PlannedRequest
from pytest_llmperf.record import Request

__all__ = ["SENT_AGAIN", "Failover", "is_answered"]

SENT_AGAIN = frozenset({"connect", "reset", "interrupted", "stalled", "incomplete", "server_error"})
"""Failures after which a request is sent to the next server. A refusal, or an answer that is
nonsense, is an answer; and a request that took all of its time has none left."""

_BAD_ENDINGS = frozenset({"error", "abort"})


def is_answered(attempt: Request) -> bool:
    """Whether an attempt gave a whole answer: ``[DONE]``, or at least a finish reason."""
    finished = attempt.finish_reason is not None and attempt.finish_reason not in _BAD_ENDINGS
    return attempt.completed or finished


class Failover:
    """Sends each request to the first healthy server, and again to the next when that one fails.

    A server that failed is left alone from then on; only when all have failed is each tried
    again. The clients are open, on one loop, and stall after the same time.

    :param clients: in the order in which they are tried.
    :param keep: takes the place of the server and the record of every attempt that is over.
    :param listen: whether a stalled attempt is listened to until ``leave``, to see it answer late.
    """

    def __init__(
        self,
        clients: Sequence[Client],
        *,
        keep: Callable[[int, Request], None],
        listen: bool = False,
    ) -> None:
        self.failed: set[int] = set()
        """Places of the servers that have failed."""
        self._clients = list(clients)
        self._keep = keep
        self._listen = listen
        self._tasks: dict[asyncio.Task[Request], tuple[int, str, int]] = {}

    async def ask(
        self,
        planned: PlannedRequest,
        *,
        ask_id: str,
        watch: Callable[[int, Flight], None] | None = None,
    ) -> tuple[int, Request] | None:
        """Send until a server answers; give its place and its answer, ``None`` if the ask is lost.

        :param watch: shown the place and the flight of each attempt as it begins.
        """
        for number, place in enumerate(self._order(), start=1):
            made = await self._attempt(planned, ask_id, number, place, watch)
            if made is not None and is_answered(made):
                return place, made
            failure = "stalled" if made is None or made.failure is None else made.failure.kind
            if failure not in SENT_AGAIN:
                return None
            self.failed.add(place)
        return None

    async def hear_out(self, within_s: float) -> None:
        """Listen to what stalled for a while longer."""
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=within_s)

    async def leave(self) -> None:
        """Break off every attempt that is under way; each has its record afterwards."""
        tasks = dict(self._tasks)
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _order(self) -> list[int]:
        places = list(range(len(self._clients)))
        return [place for place in places if place not in self.failed] or places

    async def _attempt(
        self,
        planned: PlannedRequest,
        ask_id: str,
        number: int,
        place: int,
        watch: Callable[[int, Flight], None] | None,
    ) -> Request | None:
        """One attempt's record; ``None`` where it stalled and is still listened to."""
        stalled = asyncio.Event()
        flight = Flight(stalled.set if self._listen else None)
        if watch is not None:
            watch(place, flight)
        sending = self._clients[place].asend(
            planned, request_id=f"{ask_id}.{number}", flight=flight
        )
        task = asyncio.create_task(sending)
        self._tasks[task] = (place, ask_id, number)
        task.add_done_callback(self._over)
        stall = asyncio.create_task(stalled.wait())
        try:
            await asyncio.wait((task, stall), return_when=asyncio.FIRST_COMPLETED)
        finally:
            stall.cancel()
        return task.result() if task.done() else None

    def _over(self, task: asyncio.Task[Request]) -> None:
        place, ask_id, number = self._tasks.pop(task)
        keep = partial(self._linked, place, ask_id, number)
        if task.cancelled():
            wanted = f"{ask_id}.{number}"
            for left in self._clients[place].cancelled:
                if left.request_id == wanted:
                    keep(left)
        elif task.exception() is None:
            keep(task.result())

    def _linked(self, place: int, ask_id: str, number: int, made: Request) -> None:
        self._keep(place, msgspec.structs.replace(made, attempt=number, attempt_of=ask_id))
