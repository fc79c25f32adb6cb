"""One streamed HTTP exchange -> its raw reads with stamps, and how it ended; nothing is raised.

While bytes flow they are only stamped and kept. What they say is read afterwards, in ``stream``;
connections are in ``wire``.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import anyio
import httpcore

from pytest_llmperf.client.flight import Flight
from pytest_llmperf.client.limits import Limits
from pytest_llmperf.client.wire import Connections
from pytest_llmperf.record import Failure, FailureKind
from pytest_llmperf.stream.doubt import LEFT
from pytest_llmperf.stream.sse import Event, Parser

_REFUSAL_BYTES = 4096
"""How much of a refusal's body is read for its reason."""

_FIRST_REFUSAL = 300
_FAULTS = (
    httpcore.NetworkError,
    httpcore.TimeoutException,
    httpcore.RemoteProtocolError,
    httpcore.ProxyError,
    OSError,
)
"""What a server or a network may do to us."""

_SENT = "http11.send_request_headers.started"
_CONNECT = "connection.connect_tcp.started"


class Exchange:
    """The course of one exchange. Every stamp that was reached stays, however it ends."""

    def __init__(
        self, *, clock: Callable[[], int], limits: Limits, flight: Flight | None = None
    ) -> None:
        self._clock = clock
        self._limits = limits
        self._flight = flight or Flight()
        self._stalled = False
        self._parser = Parser()
        self._parsed = 0
        self._timer: asyncio.TimerHandle | None = None
        self._scope = anyio.CancelScope()
        self._connecting_ns: int | None = None
        self.reads: list[tuple[int, bytes]] = []
        self.events: list[Event] = []
        self.sent_ns: int | None = None
        self.first_byte_ns: int | None = None
        self.closed_ns: int | None = None
        self.status: int | None = None
        self.failure: Failure | None = None
        self.was_cancelled = False

    @property
    def connect_ns(self) -> int | None:
        """How long connecting took, or was tried in vain; ``None`` on a reused connection."""
        until = self.closed_ns if self.sent_ns is None else self.sent_ns
        if self._connecting_ns is None or until is None:
            return None
        return until - self._connecting_ns

    @property
    def doubts(self) -> tuple[str, ...]:
        """What is odd about how it was listened to."""
        if not self._stalled or self.failure is not None:
            return ()
        return (f"{LEFT}: {self._patience('stalled')}, then it went on and was heard to its end",)

    @property
    def leftover(self) -> bytes:
        """The start of an event that never got its end."""
        return self._parser.leftover()

    async def run(
        self,
        connections: Connections,
        url: str,
        headers: Mapping[bytes | str, bytes | str],
        body: bytes,
    ) -> None:
        """Post and read to the end. Only a cancellation from outside is raised.

        :raises httpcore.LocalProtocolError: if what we send is no valid request.
        """
        try:
            with self._scope:
                await self._post(connections, url, headers, body)
        except _FAULTS as error:
            self._fail(*self._named(error))
        except anyio.get_cancelled_exc_class():
            self.was_cancelled = True
            if self._stalled:
                self._fail("stalled", self._patience("stalled"))
            self._fail("cancelled", "the caller left before the answer was complete")
            raise
        finally:
            self.closed_ns = self._clock()
            self._flight.is_over = True
            if self._timer is not None:
                self._timer.cancel()
            self._parse()

    async def _post(
        self,
        connections: Connections,
        url: str,
        headers: Mapping[bytes | str, bytes | str],
        body: bytes,
    ) -> None:
        extensions = {"timeout": self._socket_timeouts(), "trace": self._trace}
        async with connections.stream(
            "POST", url, headers=headers, content=body, extensions=extensions
        ) as response:
            connection = response.extensions["network_stream"]
            self.first_byte_ns = connection.read_ns
            self.status = response.status
            if response.status >= _FIRST_REFUSAL:
                await self._refused(response)
                return
            self._check_head(response)
            reads, flight = self.reads, self._flight
            async for data in response.aiter_stream():
                reads.append((connection.read_ns, data))
                flight.reads += 1

    def _socket_timeouts(self) -> dict[str, float | None]:
        limits = self._limits
        return {
            "connect": limits.connect_s,
            "read": limits.silence_s,
            "write": limits.timeout_s,
            "pool": None,
        }

    async def _trace(self, name: str, _info: dict[str, Any]) -> None:
        if name == _SENT:
            # Through a proxy the tunnel's request comes first; the last one is ours.
            self.sent_ns = self._clock()
            self._watch_later()
        elif name == _CONNECT:
            self._connecting_ns = self._clock()

    async def _refused(self, response: httpcore.Response) -> None:
        body = b""
        async for data in response.aiter_stream():
            body += data
            if len(body) >= _REFUSAL_BYTES:
                break
        text = body[:_REFUSAL_BYTES].decode("utf-8", "replace").strip()
        self._fail("refused", f"HTTP {response.status}: {text}".removesuffix(": "))

    def _check_head(self, response: httpcore.Response) -> None:
        head = {name.lower(): value.decode("latin-1") for name, value in response.headers}
        kind = head.get(b"content-type", "")
        coding = head.get(b"content-encoding", "identity")
        if coding.lower() != "identity":
            self._fail("protocol", f"the answer is encoded as {coding!r} though identity was asked")
        elif kind.lower().startswith("application/json"):
            self._fail("protocol", f"the answer is {kind!r}, not a stream of events")

    def _watch_later(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        waits = [
            left for kind, left in self._remaining_s() if kind != "stalled" or not self._stalled
        ]
        remaining_s = min(waits)
        # The timer may fire a little before our clock agrees; then it must not spin.
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(max(0.001, remaining_s), self._watch)

    def _remaining_s(self) -> Iterator[tuple[FailureKind, float]]:
        now, sent = self._clock(), self.sent_ns or 0
        latest = max(sent, self.events[-1].at_ns if self.events else sent)
        yield "timeout", self._limits.timeout_s - (now - sent) / 1e9
        yield "stalled", self._limits.stall_s - (now - latest) / 1e9

    def _watch(self) -> None:
        self._parse()
        for kind, left in self._remaining_s():
            if left <= 0 and kind == "stalled" and self._flight.on_stall is not None:
                self._stalled = True
                self._flight.on_stall()
                self._flight.on_stall = None
            elif left <= 0 and not (kind == "stalled" and self._stalled):
                self._fail(kind, self._patience(kind))
                self._scope.cancel()
                return
        self._watch_later()

    def _patience(self, kind: FailureKind) -> str:
        if kind == "timeout":
            return f"not complete after {self._limits.timeout_s:g} s"
        return f"no event for {self._limits.stall_s:g} s"

    def _parse(self) -> None:
        """Cut what was read into events: only when time is up, or when everything is over."""
        fresh, self._parsed = self.reads[self._parsed :], len(self.reads)
        for at_ns, data in fresh:
            self.events += self._parser.feed(data, at_ns)

    def _fail(self, kind: FailureKind, detail: str) -> None:
        if self.failure is None:
            self.failure = Failure(kind=kind, detail=detail)

    def _named(self, error: Exception) -> tuple[FailureKind, str]:
        detail = _described(error)
        if isinstance(error, httpcore.ConnectError | httpcore.ConnectTimeout | httpcore.ProxyError):
            return "connect", detail
        if isinstance(error, httpcore.ReadTimeout):
            return "stalled", f"not a byte for {self._limits.silence_s:g} s"
        if isinstance(error, httpcore.WriteTimeout):
            return "timeout", detail
        if isinstance(error, httpcore.RemoteProtocolError) and not _is_disconnect(error):
            return "protocol", detail
        return ("reset" if self.first_byte_ns is None else "interrupted"), detail


def _is_disconnect(error: httpcore.RemoteProtocolError) -> bool:
    # The library has one class for a peer that leaves and a peer that talks nonsense.
    return "disconnected" in str(error) or "peer closed connection" in str(error)


def _described(error: BaseException) -> str:
    """The error with the operating system's reason, which the libraries bury below it."""
    texts = [f"{type(error).__name__}: {error}".removesuffix(": ")]
    cause = error.__cause__ or error.__context__
    while cause is not None:
        if isinstance(cause, BaseExceptionGroup):
            cause = cause.exceptions[0]
        if isinstance(cause, OSError) and cause.errno is not None:
            # A failed name look-up has negative numbers of its own, and its own words for them.
            texts.append(os.strerror(cause.errno) if cause.errno > 0 else str(cause.strerror))
        cause = cause.__cause__ or cause.__context__
    return ": ".join(dict.fromkeys(texts))
