"""Connections that stamp every read before anything parses it, and how late the event loop runs.

What is sent over them is in ``exchange``. It loads the HTTP library, so it is imported only once a
client opens.
"""

from __future__ import annotations

import asyncio
import ipaddress
import math
import ssl
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import httpcore

KEEPALIVE_S = 4.0
"""How long an idle connection is kept: less than the 5 s after which vLLM's server closes it, so
that no request is sent into a connection that is being closed."""

LAG_EVERY_S = 0.005
"""How often the lag of the event loop is looked at; its timer alone is up to 1 ms late."""


class StampedStream(httpcore.AsyncNetworkStream):
    """A connection that notes when its last read returned, before the bytes are looked at."""

    def __init__(self, inner: httpcore.AsyncNetworkStream, clock: Callable[[], int]) -> None:
        self._inner = inner
        self._clock = clock
        self.read_ns: int | None = None

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109 - the base class names it so
        """Read, then stamp."""
        data = await self._inner.read(max_bytes, timeout)
        self.read_ns = self._clock()
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109 - the base class names it so
        """Write as the connection below does."""
        await self._inner.write(buffer, timeout)

    async def aclose(self) -> None:
        """Close the connection."""
        await self._inner.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - the base class names it so
    ) -> httpcore.AsyncNetworkStream:
        """Secure the connection; reads stay stamped."""
        inner = await self._inner.start_tls(ssl_context, server_hostname, timeout)
        return StampedStream(inner, self._clock)

    def get_extra_info(self, info: str) -> Any:  # noqa: ANN401 - the base class gives any fact
        """Facts of the connection below, such as its ``socket``."""
        return self._inner.get_extra_info(info)


class StampedBackend(httpcore.AsyncNetworkBackend):
    """Opens stamped connections. Nagle's algorithm is off: asyncio sets TCP_NODELAY itself.

    :param address: where every connection goes, in place of what its host's name stands for.
    """

    def __init__(self, clock: Callable[[], int], address: str | None = None) -> None:
        self._inner = httpcore.AnyIOBackend()
        self._clock = clock
        self._address = address

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - the base class names it so
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect, name resolution included."""
        where = self._address or host
        inner = await self._inner.connect_tcp(where, port, timeout, local_address, socket_options)
        return StampedStream(inner, self._clock)

    async def sleep(self, seconds: float) -> None:
        """Wait; asked for only between connection attempts, of which there is one."""
        await self._inner.sleep(seconds)


def open_pool(
    clock: Callable[[], int], *, proxy: str | None, address: str | None = None
) -> httpcore.AsyncConnectionPool:
    """HTTP/1.1 connections without a limit, without retries, and without redirects."""
    backend = StampedBackend(clock, None if proxy is not None else address)
    if proxy is not None:
        return httpcore.AsyncHTTPProxy(
            proxy_url=proxy, keepalive_expiry=KEEPALIVE_S, network_backend=backend
        )
    return httpcore.AsyncConnectionPool(
        max_connections=None,
        keepalive_expiry=KEEPALIVE_S,
        http1=True,
        http2=False,
        retries=0,
        network_backend=backend,
    )


class Connections:
    """Any number of kept connections at once, each in a pool of its own.

    A pool looks at all of its connections whenever one is taken or given back. With hundreds of
    them idle that keeps the loop for seconds in all, while other answers wait to be stamped.

    :param open_one: makes a pool, of which one connection at a time is used.
    """

    def __init__(self, open_one: Callable[[], httpcore.AsyncConnectionPool]) -> None:
        self._open_one = open_one
        self._all: list[httpcore.AsyncConnectionPool] = []
        self._free: list[httpcore.AsyncConnectionPool] = []

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[bytes | str, bytes | str],
        content: bytes,
        extensions: dict[str, Any],
    ) -> AsyncIterator[httpcore.Response]:
        """Send a request on the connection that was used last, or on a new one; give its answer."""
        one = self._free.pop() if self._free else self._another()
        try:
            async with one.stream(
                method, url, headers=headers, content=content, extensions=extensions
            ) as response:
                yield response
        finally:
            self._free.append(one)

    async def aclose(self) -> None:
        """Close all of them."""
        while self._all:
            await self._all.pop().aclose()

    def _another(self) -> httpcore.AsyncConnectionPool:
        self._all.append(self._open_one())
        return self._all[-1]


def proxy_for(url: str, *, trust_env: bool) -> str | None:
    """Name the environment's proxy for this address; never one for loopback."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if not trust_env or _is_loopback(host) or urllib.request.proxy_bypass(host):
        return None
    return urllib.request.getproxies().get(parts.scheme)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class LagMeter:
    """How late the event loop runs its timers while requests are under way; one for all of them."""

    def __init__(self, every_s: float = LAG_EVERY_S) -> None:
        self._every_s = every_s
        self._late_ns: list[int] = []
        self._active = 0
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> int:
        """Count one request in; give the mark to end it with."""
        if self._active == 0:
            self._late_ns.clear()
            self._arm()
        self._active += 1
        return len(self._late_ns)

    def end(self, mark: int) -> int | None:
        """Count one request out: nanoseconds late, 99th percentile since ``mark``.

        ``None`` when the request was over before the first look.
        """
        self._active -= 1
        if self._active == 0 and self._timer is not None:
            self._timer.cancel()
        late = sorted(self._late_ns[mark:])
        return late[math.ceil(0.99 * len(late)) - 1] if late else None

    def _arm(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time() + self._every_s
        self._timer = loop.call_at(due, self._look, due)

    def _look(self, due: float) -> None:
        late_s = asyncio.get_running_loop().time() - due
        self._late_ns.append(max(0, round(late_s * 1e9)))
        self._arm()
