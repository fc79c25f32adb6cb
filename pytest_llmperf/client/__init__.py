"""One planned request -> one ``record.Request``, over HTTP/1.1, with and without pytest.

Its connections are in ``wire``, the course of one exchange in ``exchange``. What the bytes mean is
in the room ``stream``; keeping the records is in ``evidence``.

    from pytest_llmperf.client import Client
    from pytest_llmperf.planned import PlannedRequest

    hello = PlannedRequest(
        prompt="hello", messages=({"role": "user", "content": "Say hello."},), max_tokens=16
    )
    with Client("http://127.0.0.1:8000", model="gemma") as client:
        answer = client.send(hello, request_id="1")
    if answer.completed:
        wait_s = (answer.stamps.first_token_ns - answer.stamps.sent_ns) / 1e9

A server's or a network's fault is never raised by ``send``: it is the record's ``failure``.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Self, TypeVar
from urllib.parse import urlsplit

import msgspec

from pytest_llmperf import flags, record
from pytest_llmperf.client.flight import Flight
from pytest_llmperf.client.limits import Limits
from pytest_llmperf.errors import UsageError
from pytest_llmperf.planned import PlannedRequest
from pytest_llmperf.stream import Reading, read_stream

if TYPE_CHECKING:
    from pytest_llmperf.client.exchange import Exchange
    from pytest_llmperf.client.pages import Pages
    from pytest_llmperf.client.portal import Portal
    from pytest_llmperf.client.wire import Connections, LagMeter

_QUOTING = ("refused", "server_error", "protocol")
"""Failures whose detail may hold words of the request or of its answer."""

_T = TypeVar("_T")


class Client:
    """A client of one server. Enter it with ``with``, or with ``async with`` for ``asend``.

    :param url: the server's address, with or without a final ``/v1``.
    :param model: the served model's id.
    :param timeout_s: limit of a whole request, from the first byte sent.
    :param stall_s: limit between events; comments are no events.
    :param connect_s: limit of name resolution, connection and TLS.
    :param silence_s: limit between reads of any bytes, comments included; none unless given.
    :param token_ids: whether to ask for token ids, which vLLM has and some servers refuse.
    :param trust_env: whether to use the environment's proxies, except for loopback.
    :param address: an address to connect to, in place of looking the host's name up each time.
    :param metrics_url: the server's metrics page where it is not ``/metrics`` of ``url``.
    :param clock: monotonic nanoseconds, for every stamp.
    :raises UsageError: if the address is no http or https address.
    """

    def __init__(
        self,
        url: str,
        *,
        model: str,
        timeout_s: float = 600.0,
        stall_s: float = 120.0,
        connect_s: float = 10.0,
        silence_s: float | None = None,
        api_key: str | None = None,
        token_ids: bool = True,
        trust_env: bool = False,
        address: str | None = None,
        metrics_url: str | None = None,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.url = _address(url)
        self.model = model
        self.metrics_page = metrics_url or "/metrics"
        """Where ``get_text`` finds the server's counters."""
        self.cancelled: list[record.Request] = []
        """Requests that their caller left: an interrupted ``send`` cannot return them."""
        self._limits = Limits(
            timeout_s=timeout_s, stall_s=stall_s, connect_s=connect_s, silence_s=silence_s
        )
        self._key = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._token_ids = token_ids
        self._trust_env = trust_env
        self._address = address
        self._clock = clock
        self._connections: Connections | None = None
        self._pages: Pages | None = None
        self._lag: LagMeter | None = None
        self._portal: Portal | None = None
        self._open = ExitStack()

    def __enter__(self) -> Self:
        from pytest_llmperf.client.portal import Portal  # noqa: PLC0415 - loaded on use, not on import

        with ExitStack() as opening:
            self._portal = opening.enter_context(Portal())
            self._portal.wait(self.__aenter__)
            opening.callback(self._portal.wait, self._aclose)
            self._open = opening.pop_all()
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections and the loop; may be called again."""
        self._open.close()
        self._portal = None

    async def __aenter__(self) -> Self:
        from pytest_llmperf.client import pages, wire  # noqa: PLC0415 - loaded on use, not on import

        proxy = wire.proxy_for(self.url, trust_env=self._trust_env)
        self._connections = wire.Connections(
            lambda: wire.open_pool(self._clock, proxy=proxy, address=self._address)
        )
        self._pages = pages.Pages(self.url, headers=self._key, trust_env=proxy is not None)
        self._lag = wire.LagMeter()
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self._aclose()

    async def _aclose(self) -> None:
        await self._opened(self._connections).aclose()
        await self._opened(self._pages).aclose()
        self._connections = self._pages = self._lag = None

    def send(
        self, planned: PlannedRequest, *, request_id: str, due_ns: int | None = None
    ) -> record.Request:
        """Send one request and read its answer to the end.

        An interrupted caller (Ctrl-C) leaves: the connection is closed before the interrupt is
        passed on, and what was seen of the answer is in ``cancelled``.
        """
        return self._opened(self._portal).wait(
            lambda: self.asend(planned, request_id=request_id, due_ns=due_ns)
        )

    async def asend(
        self,
        planned: PlannedRequest,
        *,
        request_id: str,
        due_ns: int | None = None,
        flight: Flight | None = None,
    ) -> record.Request:
        """Send one request; any number may run at once on one loop.

        :param flight: shows the caller how far it has come, and keeps listening to a stalled one.
        """
        from pytest_llmperf.client.exchange import Exchange  # noqa: PLC0415 - loaded on use, not on import

        connections, lag = self._opened(self._connections), self._opened(self._lag)
        body = msgspec.json.encode(planned.body(self.model, token_ids=self._token_ids))
        exchange = Exchange(clock=self._clock, limits=self._limits, flight=flight)
        mark = lag.begin()
        try:
            await exchange.run(connections, self.url + planned.path, self._headers(), body)
        finally:
            made = _record(
                planned,
                exchange,
                url=self.url,
                request_id=request_id,
                due_ns=due_ns,
                late_ns=lag.end(mark),
            )
            if exchange.was_cancelled:
                self.cancelled.append(made)
        return made

    def together(
        self, errand: Callable[[], Awaitable[None]], *, meanwhile: Callable[[], None]
    ) -> None:
        """Run an errand of several ``asend`` on the client's loop.

        An interrupted caller leaves as it leaves ``send``: what was seen of the answers that were
        under way is in ``cancelled``.

        :param meanwhile: called in the caller's thread several times a second until it is over.
        """
        self._opened(self._portal).wait(errand, meanwhile=meanwhile)

    def get_text(self, path: str, *, timeout_s: float = 10.0) -> str:
        """Get a page of the server, such as ``/metrics``, on a connection of its own.

        A whole address may be in the place of a path.

        :raises EngineError: if there is no answer within ``timeout_s``, or it is not 2xx.
        """
        return self._opened(self._portal).wait(lambda: self.aget_text(path, timeout_s=timeout_s))

    def post_json(self, path: str, body: object, *, timeout_s: float = 30.0) -> Any:  # noqa: ANN401 - JSON
        """Post JSON, such as to ``/tokenize``, on a connection of its own; give the JSON answer.

        :raises EngineError: if there is no answer within ``timeout_s``, or no JSON with a 2xx.
        """
        return self._opened(self._portal).wait(
            lambda: self.apost_json(path, body, timeout_s=timeout_s)
        )

    async def aget_text(self, path: str, *, timeout_s: float = 10.0) -> str:
        """Do what ``get_text`` does, on the caller's loop."""
        return await self._opened(self._pages).get_text(path, timeout_s=timeout_s)

    async def apost_json(self, path: str, body: object, *, timeout_s: float = 30.0) -> Any:  # noqa: ANN401 - JSON
        """Do what ``post_json`` does, on the caller's loop."""
        return await self._opened(self._pages).post_json(path, body, timeout_s=timeout_s)

    def _headers(self) -> dict[bytes | str, bytes | str]:
        headers: dict[bytes | str, bytes | str] = {
            "Accept": "text/event-stream",
            "Accept-Encoding": "identity",
            "Content-Type": "application/json",
            "User-Agent": "pytest-llmperf",
        }
        headers.update(self._key)
        return headers

    def _opened(self, part: _T | None) -> _T:
        if part is None:
            raise UsageError(
                f"The client of {self.url} is not open.",
                "It was used outside its with block.",
                "Write: with Client(...) as client: client.send(...)",
            )
        return part


def _address(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise UsageError(
            f"The server's address {url!r} is no http or https address.",
            f"Its scheme is {parts.scheme!r} and its host is {parts.hostname!r}.",
            "Write it like http://127.0.0.1:8000",
        )
    return url.rstrip("/").removesuffix("/v1").rstrip("/")


def _stamps(exchange: Exchange, reading: Reading, due_ns: int | None) -> record.Stamps:
    return record.Stamps(
        due_ns=due_ns,
        sent_ns=exchange.sent_ns,
        first_byte_ns=exchange.first_byte_ns,
        first_event_ns=reading.first_event_ns,
        first_token_ns=reading.first_token_ns,
        first_visible_ns=reading.first_visible_ns,
        first_answer_ns=reading.first_answer_ns,
        last_token_ns=reading.last_token_ns,
        closed_ns=exchange.closed_ns,
    )


def _withheld(failure: record.Failure | None) -> record.Failure | None:
    """A failure without the words of a private request, which servers quote in their refusals."""
    if failure is None or failure.kind not in _QUOTING:
        return failure
    named = flags.named_in(failure.detail)
    hint = f"; it names {', '.join(named)}" if named else ""
    status = failure.detail.partition(":")[0] if failure.kind == "refused" else failure.kind
    return msgspec.structs.replace(failure, detail=f"{status}: words withheld{hint}")


def _numbers(timings: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """What a server says beside a private answer, its numbers only: texts may quote the request."""
    kept: dict[str, Any] = {}
    for field, found in (timings or {}).items():
        inner = found.items() if isinstance(found, dict) else ()
        numbers = {key: each for key, each in inner if _is_number(each)}
        if numbers or _is_number(found):
            kept[field] = numbers or found
    return kept or None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _record(
    planned: PlannedRequest,
    exchange: Exchange,
    *,
    url: str,
    request_id: str,
    due_ns: int | None,
    late_ns: int | None,
) -> record.Request:
    reading = read_stream(
        exchange.events,
        has_prompt=planned.has_prompt,
        leftover=exchange.leftover,
        broken=exchange.failure,
    )
    return record.Request(
        request_id=request_id,
        prompt=planned.prompt,
        prompt_digest=planned.digest(),
        content_class=planned.content_class,
        temperature=planned.temperature,
        max_tokens=planned.max_tokens,
        url=url,
        http_status=exchange.status,
        failure=_withheld(reading.failure) if planned.private else reading.failure,
        finish_reason=reading.finish_reason,
        answered_by=reading.answered_by,
        stamps=_stamps(exchange, reading, due_ns),
        usage=reading.usage,
        tokens_from=reading.tokens_from,
        chunks=reading.chunks,
        connect_ns=exchange.connect_ns,
        loop_lag_ns=late_ns,
        server_timings=_numbers(reading.server_timings)
        if planned.private
        else reading.server_timings,
        output_digest=reading.output_digest,
        repetition=reading.repetition,
        warnings=(*reading.warnings, *exchange.doubts),
    )
