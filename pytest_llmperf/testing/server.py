"""A real HTTP/1.1 server on loopback that answers by script, else as a healthy engine would.

The scripts are in ``scripts``, the imagined engine is in ``make_believe``; here is only HTTP.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, Self

import msgspec

from pytest_llmperf.testing import metrics_page, scripts
from pytest_llmperf.testing.dialect import Dialect
from pytest_llmperf.testing.line import Left, Line, Received
from pytest_llmperf.testing.make_believe import Behaviour, Counts, Faults, MakeBelieve, Turn
from pytest_llmperf.testing.scripts import Answer

_GENERATIONS = ("/v1/chat/completions", "/v1/completions")
_ACCEPTING_TURNS = 10
_JSON = {"Content-Type": "application/json"}


_NO_PARSER = (
    '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
)


class ScriptedServer:
    """Serves from a thread of its own while it is entered.

    :param script: answers to the first generation requests, in order; afterwards, and without a
        script, an imagined vLLM with prefix caching answers.
    :param model: the one id that ``/v1/models`` lists.
    :param port: 0 takes a free one.
    """

    def __init__(
        self,
        script: Iterable[Answer] = (),
        *,
        model: str = "scripted",
        behaviour: Behaviour | None = None,
        faults: Faults | None = None,
        port: int = 0,
    ) -> None:
        self.model = model
        self.behaviour = behaviour or Behaviour()
        self.faults = faults or Faults()
        self.port = port
        self.requests: list[Received] = []
        self.connections = 0
        """Connections accepted so far."""
        self.open_now = 0
        """Generations under way."""
        self.most_open = 0
        """The most generations that were ever under way at once."""
        self.started_at = datetime.now(UTC).timestamp()
        self._engine = MakeBelieve(model, self.behaviour, self.faults)
        self._script = deque(script)
        self._changed = threading.Condition()
        self._ready = threading.Event()
        self._thawed = threading.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        """The address, without a path."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def counts(self) -> Counts:
        """What the metrics page says, as numbers; may be changed to plant foreign traffic."""
        return self._engine.counts

    @property
    def generations(self) -> list[Received]:
        """The generation requests among all that were received."""
        return [each for each in self.requests if each.path in _GENERATIONS]

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._thawed.set()
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def die(self) -> None:
        """Break every connection and accept no more."""
        asyncio.run_coroutine_threadsafe(self._die(), self._loop).result()

    def freeze(self) -> None:
        """Stop as a stopped process does: connections stay, and nothing is read or written."""
        self._thawed.clear()
        frozen = threading.Event()

        def stand_still() -> None:
            frozen.set()
            self._thawed.wait()

        self._loop.call_soon_threadsafe(stand_still)
        frozen.wait()

    def thaw(self) -> None:
        """Go on after ``freeze``."""
        self._thawed.set()

    def restart(self) -> None:
        """Forget counters and cache, as a restarted engine does."""
        self._engine.forget()
        self.started_at = datetime.now(UTC).timestamp()

    def wait_open(self, count: int, *, within_s: float = 10.0) -> bool:
        """Wait until exactly ``count`` generations are under way; tell whether they were."""
        with self._changed:
            return self._changed.wait_for(lambda: self.open_now == count, within_s)

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self._all_here = asyncio.Event()
        server = await asyncio.start_server(
            self._connected, "127.0.0.1", self.port, backlog=2048, limit=2**20
        )
        self._listener = server
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        await self._die()
        await asyncio.gather(*self._tasks)

    async def _die(self) -> None:
        self._all_here.set()
        for each in self._listener.sockets:
            self._loop.remove_reader(each.fileno())
        # A connection that is just being accepted gets its task a few turns of the loop later; the
        # listener must not be closed under it, for asyncio would then lose its socket.
        for _ in range(_ACCEPTING_TURNS):
            await asyncio.sleep(0)
        self._listener.close()
        for writer in self._writers:
            writer.transport.abort()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        number, self.connections = self.connections, self.connections + 1
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        self._writers.add(writer)
        if self._stop.is_set():
            writer.transport.abort()
        leaving = (Left, OSError, asyncio.IncompleteReadError)
        with contextlib.suppress(*leaving):
            line = Line(reader, writer)
            while await self._one(line, number):
                pass
        self._writers.discard(writer)
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    async def _one(self, line: Line, number: int) -> bool:
        """Answer one request; tell whether another may follow on the connection."""
        received = await line.receive(number)
        self.requests.append(received)
        if received.path in _GENERATIONS:
            with self._counted():
                stays = await self._generate(line, received)
        else:
            await line.page(*self._page(received))
            stays = True
        return stays and received.headers.get("connection", "").lower() != "close"

    @contextlib.contextmanager
    def _counted(self) -> Iterator[None]:
        self._count(+1)
        try:
            yield
        finally:
            self._count(-1)

    def _count(self, change: int) -> None:
        with self._changed:
            self.open_now += change
            self.most_open = max(self.most_open, self.open_now)
            self._changed.notify_all()

    def _page(self, received: Received) -> tuple[int, dict[str, str], bytes]:
        """Every page that is no generation."""
        body = received.body if isinstance(received.body, dict) else {}
        if received.path == "/health":
            return 200, {}, b""
        if received.path == "/version":
            return 200, _JSON, msgspec.json.encode({"version": self.behaviour.version})
        if received.path == "/v1/models":
            return 200, _JSON, msgspec.json.encode({"object": "list", "data": [self._card()]})
        if received.path == "/metrics" and not self.faults.no_metrics:
            text = metrics_page.page(self._engine, started_at=self.started_at)
            return 200, {"Content-Type": "text/plain; version=1.0.0"}, text.encode()
        if received.path == "/tokenize" and not self.faults.no_tokenize:
            return 200, _JSON, msgspec.json.encode(self._tokens(body))
        return 404, _JSON, b'{"detail":"Not Found"}'

    def _card(self) -> dict[str, Any]:
        length = self.behaviour.max_model_len
        return {"id": self.model, "object": "model", "owned_by": "vllm", "max_model_len": length}

    def _tokens(self, body: dict[str, Any]) -> dict[str, Any]:
        tokens = self._engine.tokenize(body)
        length = self.behaviour.max_model_len
        return {"count": len(tokens), "max_model_len": length, "tokens": tokens}

    async def _generate(self, line: Line, received: Received) -> bool:
        limit = self.faults.die_after
        if limit is not None and len(self.generations) > limit:
            await self._die()
            return False
        if self.faults.admit is not None and self.open_now > self.faults.admit:
            return await line.script(scripts.refusal(503, "The queue is full."))
        if self.faults.refuse_tools and received.body.get("tools"):
            return await line.script(scripts.refusal(400, _NO_PARSER))
        if self.faults.hang:
            await line.until_left()
        if self._script:
            return await line.script(self._script.popleft())
        if received.body.get("model") != self.model:
            message = f"The model `{received.body.get('model')}` does not exist."
            return await line.script(scripts.refusal(404, message))
        await self._believe(line, received)
        return True

    async def _believe(self, line: Line, received: Received) -> None:
        """Let the imagined engine answer."""
        turn, reason = self._engine.begin(received.body), "abort"
        try:
            if turn.number >= self.behaviour.before_gathering:
                await self._gathered()
            if received.body.get("stream"):
                await self._stream(line, turn, received)
            else:
                await line.page(200, _JSON, await self._whole(line, turn, received))
            reason = self._engine.finish_reason(turn)
        finally:
            self._engine.end(turn, reason)

    async def _gathered(self) -> None:
        """Wait until as many are under way as the behaviour asks for."""
        if self.most_open >= self.behaviour.gather:
            self._all_here.set()
        await self._all_here.wait()

    async def _stream(self, line: Line, turn: Turn, received: Received) -> None:
        body = received.body | ({"return_token_ids": False} if self.faults.no_token_ids else {})
        has_chat = received.path == _GENERATIONS[0]
        dialect = Dialect(body, turn, model=self.model, has_chat=has_chat)
        await line.head(200, {"Content-Type": scripts.STREAM})
        opening = dialect.opening()
        for wait_s, text, ids in self._engine.steps(turn):
            await line.pause(wait_s)
            is_last = len(turn.made) >= turn.limit
            finish = self._engine.finish_reason(turn) if is_last else None
            await line.part(opening)
            await line.part(dialect.chunk(text, ids, finish))
            opening = b""
        await line.part(dialect.closing(self._engine.usage(turn)))
        await line.part(scripts.done())
        await line.finish()

    async def _whole(self, line: Line, turn: Turn, received: Received) -> bytes:
        made = []
        for wait_s, text, _ids in self._engine.steps(turn):
            await line.pause(wait_s)
            made.append(text)
        choice: dict[str, Any] = {"index": 0, "finish_reason": self._engine.finish_reason(turn)}
        if received.path == _GENERATIONS[0]:
            choice["message"] = {"role": "assistant", "content": "".join(made)}
        else:
            choice["text"] = "".join(made)
        body = {"id": f"gen-{turn.number}", "model": self.model, "choices": [choice]}
        return msgspec.json.encode(body | {"usage": self._engine.usage(turn)})
