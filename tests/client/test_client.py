"""The client against a server on loopback: stamps, connections, and what is sent (S3, S16, F7)."""

# ruff: noqa: ANN401 - chunks are JSON, and builders pass on whatever fields they are given

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import httpcore
import msgspec
import pytest

from pytest_llmperf import record
from pytest_llmperf.client import Client
from pytest_llmperf.client.pages import Pages
from pytest_llmperf.client.wire import LagMeter, StampedBackend, StampedStream, open_pool, proxy_for
from pytest_llmperf.errors import EngineError, UsageError
from pytest_llmperf.planned import PlannedRequest
from pytest_llmperf.testing import (
    Answer,
    Behaviour,
    Faults,
    ScriptedServer,
    TickingClock,
    chat_stream,
    comment,
    done,
    event,
    refusal,
    stream,
)

Scripted = Callable[..., tuple[Client, ScriptedServer]]


def reached(stamps: record.Stamps) -> list[int]:
    """The stamps of one request in the order in which they must be."""
    order = ("sent", "first_byte", "first_event", "first_token", "last_token", "closed")
    return [getattr(stamps, f"{name}_ns") for name in order]


class TestStamps:
    def test_each_comes_no_earlier_than_the_one_before(
        self, scripted: Scripted, hello: PlannedRequest
    ) -> None:
        client, _ = scripted(chat_stream(tokens=4, first_s=0.002), clock=TickingClock())
        stamps = reached(client.send(hello, request_id="r").stamps)
        assert stamps == sorted(stamps)

    def test_what_comes_in_one_read_has_one_stamp(
        self, scripted: Scripted, hello: PlannedRequest
    ) -> None:
        parts = b"".join(data for _, data in chat_stream(tokens=4).parts)
        client, _ = scripted(stream(parts), clock=TickingClock())
        request = client.send(hello, request_id="r")
        assert len({chunk.at_ns for chunk in request.chunks}) == 1
        assert len(request.chunks) == 4

    def test_a_read_is_stamped_when_it_returns_and_before_it_is_handed_on(self) -> None:
        class Slow(httpcore.AsyncNetworkStream):
            async def read(self, *_limits: object) -> bytes:
                clock.advance(7.0)
                return b"x"

        clock = TickingClock(step_ns=0)
        connection = StampedStream(Slow(), clock)
        assert connection.read_ns is None
        assert asyncio.run(connection.read(1)) == b"x"
        assert connection.read_ns == 7_000_000_000

    def test_gaps_add_up_and_a_shifted_clock_changes_no_duration(
        self, hello: PlannedRequest
    ) -> None:
        seen = []
        for start_ns in (0, 10**18):
            with (
                ScriptedServer([chat_stream(tokens=1)] * 2) as server,
                Client(server.url, model="scripted", clock=TickingClock(start_ns)) as client,
            ):
                stamps = client.send(hello, request_id="r").stamps
                assert stamps.sent_ns is not None
                seen.append([None if s is None else s - stamps.sent_ns for s in reached(stamps)])
                chunks = client.send(hello, request_id="r").chunks
                gaps = [b.at_ns - a.at_ns for a, b in pairwise(chunks)]
                assert sum(gaps) == chunks[-1].at_ns - chunks[0].at_ns
        assert seen[0][:2] == seen[1][:2]

    def test_usage_and_end_mark_do_not_extend_the_last_token(
        self, scripted: Scripted, hello: PlannedRequest
    ) -> None:
        answer = chat_stream(tokens=2)
        *head, usage, end = answer.parts
        late = msgspec.structs.replace(answer, parts=(*head, (0.1, usage[1]), (0.1, end[1])))
        client, _ = scripted(late)
        stamps = client.send(hello, request_id="r").stamps
        assert stamps.last_token_ns is not None
        assert stamps.closed_ns is not None
        assert stamps.closed_ns - stamps.last_token_ns >= 100_000_000

    def test_a_role_chunk_that_comes_early_is_told_apart(
        self, scripted: Scripted, hello: PlannedRequest
    ) -> None:
        client, _ = scripted(chat_stream(tokens=2, first_s=0.1))
        stamps = client.send(hello, request_id="r").stamps
        assert stamps.first_event_ns is not None
        assert stamps.first_token_ns is not None
        assert stamps.first_token_ns - stamps.first_event_ns > 0

    def test_comments_are_no_events(self, scripted: Scripted, hello: PlannedRequest) -> None:
        parts = chat_stream(tokens=2).parts
        late = [(0.1, parts[0][1]), *parts[1:]]
        client, _ = scripted(stream(comment(), (0.0, b": \n\n"), *late))
        stamps = client.send(hello, request_id="r").stamps
        assert stamps.first_byte_ns is not None
        assert stamps.first_event_ns is not None
        assert stamps.first_event_ns - stamps.first_byte_ns > 0

    def test_the_schedules_wish_is_kept(self, scripted: Scripted, hello: PlannedRequest) -> None:
        client, _ = scripted()
        assert client.send(hello, request_id="r", due_ns=5).stamps.due_ns == 5


class TestRecord:
    def test_it_holds_what_was_asked_and_what_came(
        self, scripted: Scripted, hello: PlannedRequest
    ) -> None:
        client, server = scripted(chat_stream(tokens=4, cached_tokens=96, tokens_per_chunk=2))
        request = client.send(hello, request_id="r7")
        assert (request.request_id, request.prompt, request.url) == ("r7", "hello", server.url)
        assert request.prompt_digest == hello.digest()
        assert (request.max_tokens, request.temperature) == (8, 0.0)
        assert (request.http_status, request.failure, request.finish_reason) == (
            200,
            None,
            "length",
        )
        assert request.usage == record.Usage(
            prompt_tokens=100, completion_tokens=4, cached_tokens=96
        )
        assert [chunk.tokens for chunk in request.chunks] == [2, 2]
        assert request.answered_by.model == "scripted"
        assert request.completed

    def test_raw_text_cut_at_every_byte_arrives_whole(
        self, scripted: Scripted, hello: PlannedRequest
    ) -> None:
        text = "é🙂\u2028x"
        choice = {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": "stop"}]}
        sent = event(choice) + done()
        cut, _ = scripted(stream(*(bytes([byte]) for byte in sent)))
        whole, _ = scripted(stream(sent))
        one, other = cut.send(hello, request_id="r"), whole.send(hello, request_id="r")
        assert one.output_digest == other.output_digest is not None
        assert one.failure is None

    def test_a_completion_is_sent_to_its_own_endpoint(self, scripted: Scripted) -> None:
        client, server = scripted()
        asked = PlannedRequest(prompt="p", endpoint="completions", text="a b c", max_tokens=3)
        request = client.send(asked, request_id="r")
        assert request.usage == record.Usage(prompt_tokens=3, completion_tokens=3, cached_tokens=0)
        assert server.generations[0].path == "/v1/completions"


class TestWhatIsSent:
    def test_headers_ask_for_a_plain_stream(
        self, scripted: Scripted, hello: PlannedRequest
    ) -> None:
        client, server = scripted(api_key="secret")
        client.send(hello, request_id="r")
        headers = server.requests[0].headers
        assert headers["accept-encoding"] == "identity"
        assert headers["accept"] == "text/event-stream"
        assert headers["authorization"] == "Bearer secret"
        assert headers["content-type"] == "application/json"

    def test_the_body_is_the_planned_one(self, scripted: Scripted, hello: PlannedRequest) -> None:
        client, server = scripted(token_ids=False)
        client.send(hello, request_id="r")
        assert server.requests[0].body == hello.body("scripted", token_ids=False)

    @pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/"])
    def test_the_address_may_end_in_v1(self, suffix: str, hello: PlannedRequest) -> None:
        with (
            ScriptedServer() as server,
            Client(server.url + suffix, model="scripted") as client,
        ):
            assert client.send(hello, request_id="r").completed
            assert client.url == server.url

    @pytest.mark.parametrize(
        ("url", "scheme", "host"),
        [("127.0.0.1:8000", "''", "None"), ("ftp://a", "'ftp'", "'a'")],
    )
    def test_an_address_that_is_none_is_refused(self, url: str, scheme: str, host: str) -> None:
        with pytest.raises(UsageError) as caught:
            Client(url, model="m")
        assert str(caught.value) == (
            f"The server's address {url!r} is no http or https address.\n"
            f"Its scheme is {scheme} and its host is {host}.\n"
            "Write it like http://127.0.0.1:8000"
        )


class TestConnections:
    def test_set_up_is_told_apart_and_only_once(
        self, scripted: Scripted, hello: PlannedRequest
    ) -> None:
        client, server = scripted()
        first, second = (client.send(hello, request_id=each) for each in "ab")
        assert first.connect_ns is not None
        assert first.connect_ns > 0
        assert second.connect_ns is None
        assert server.connections == 1

    def test_a_slow_set_up_is_outside_the_measured_interval(
        self, scripted: Scripted, hello: PlannedRequest, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        quick, clock = StampedBackend.connect_tcp, TickingClock(step_ns=1)

        async def slow(self: StampedBackend, *args: Any, **rest: Any) -> Any:
            clock.advance(1000.0)
            return await quick(self, *args, **rest)

        monkeypatch.setattr(StampedBackend, "connect_tcp", slow)
        client, _ = scripted(chat_stream(tokens=2), clock=clock)
        request = client.send(hello, request_id="r")
        assert request.connect_ns is not None
        assert request.connect_ns >= 1000 * 10**9
        stamps = reached(request.stamps)
        assert stamps[-1] - stamps[0] < 1000

    def test_a_read_connection_has_no_nagle_delay(self) -> None:
        async def option(port: int) -> int:
            backend = StampedBackend(TickingClock())
            connection = await backend.connect_tcp("127.0.0.1", port)
            taken = connection.get_extra_info("socket")
            value = taken.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            await connection.aclose()
            return int(value)

        with ScriptedServer() as server:
            assert asyncio.run(option(server.port)) == 1

    def test_idle_ones_are_dropped_before_the_server_drops_them(self) -> None:
        pool = open_pool(TickingClock(), proxy=None)
        assert pool._keepalive_expiry == 4.0
        assert pool._retries == 0
        assert isinstance(pool._network_backend, StampedBackend)

    def test_a_connection_that_the_server_closed_is_not_used_again(
        self, scripted: Scripted, hello: PlannedRequest
    ) -> None:
        closing = {"Content-Type": "text/event-stream", "Connection": "close"}
        answer = msgspec.structs.replace(chat_stream(), headers=closing)
        client, server = scripted(answer, chat_stream())
        requests = [client.send(hello, request_id=each) for each in "ab"]
        assert [each.failure for each in requests] == [None, None]
        assert server.connections == 2

    @pytest.mark.parametrize(
        ("url", "trust_env", "proxy"),
        [
            ("http://10.1.1.1:8000", False, None),
            ("http://10.1.1.1:8000", True, "http://proxy:3128"),
            ("http://127.0.0.1:8000", True, None),
            ("http://[::1]:8000", True, None),
            ("http://localhost:8000", True, None),
        ],
    )
    def test_the_environments_proxy_is_used_only_when_said_and_never_for_loopback(
        self, url: str, trust_env: bool, proxy: str | None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("http_proxy", "http://proxy:3128")
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        assert proxy_for(url, trust_env=trust_env) == proxy

    def test_a_proxy_is_used_as_one(self) -> None:
        pool = open_pool(TickingClock(), proxy="http://proxy:3128")
        assert isinstance(pool, httpcore.AsyncHTTPProxy)


class TestOneTryF7:
    def test_a_refusal_is_not_tried_again(self, scripted: Scripted, hello: PlannedRequest) -> None:
        client, server = scripted(refusal(503), refusal(429), refusal(500))
        kinds = [client.send(hello, request_id=each).failure for each in "abc"]
        assert [failure.kind for failure in kinds if failure] == ["refused"] * 3
        assert len(server.generations) == 3

    def test_a_broken_connection_is_not_tried_again(
        self, scripted: Scripted, hello: PlannedRequest
    ) -> None:
        client, server = scripted(stream(as_is=True), chat_stream())
        failure = client.send(hello, request_id="r").failure
        assert failure is not None
        assert failure.kind == "reset"
        assert len(server.generations) == 1

    def test_a_redirect_is_not_followed(self, scripted: Scripted, hello: PlannedRequest) -> None:
        client, server = scripted(Answer(status=307, headers={"Location": "/elsewhere"}))
        request = client.send(hello, request_id="r")
        assert request.failure == record.Failure(kind="refused", detail="HTTP 307")
        assert request.http_status == 307
        assert len(server.requests) == 1


class TestLagS16:
    def test_a_loop_that_runs_late_says_so(self) -> None:
        async def lag_ns() -> int | None:
            meter = LagMeter(every_s=0.001)
            mark = meter.begin()
            await asyncio.sleep(0.01)
            end = asyncio.get_running_loop().time() + 0.05
            while asyncio.get_running_loop().time() < end:
                pass
            await asyncio.sleep(0.01)
            return meter.end(mark)

        late_ns = asyncio.run(lag_ns())
        assert late_ns is not None
        assert late_ns >= 40_000_000

    def test_a_request_over_before_the_first_look_has_no_lag(self) -> None:
        async def lag_ns() -> int | None:
            meter = LagMeter(every_s=60.0)
            mark = meter.begin()
            await asyncio.sleep(0)
            return meter.end(mark)

        assert asyncio.run(lag_ns()) is None

    def test_a_request_long_enough_has_one(self, scripted: Scripted, hello: PlannedRequest) -> None:
        client, _ = scripted(chat_stream(tokens=2, gap_s=0.03))
        assert client.send(hello, request_id="r").loop_lag_ns is not None


class TestManyAtOnce:
    def test_many_streams_share_a_loop_and_each_is_whole(self, hello: PlannedRequest) -> None:
        async def all_of_them(url: str) -> list[record.Request]:
            async with Client(url, model="scripted") as client:
                waves = (range(50), range(50, 100))
                return [
                    each
                    for wave in waves
                    for each in await asyncio.gather(
                        *(client.asend(hello, request_id=str(n)) for n in wave)
                    )
                ]

        answers = [chat_stream(tokens=4, first_s=0.5)] * 50 + [chat_stream(tokens=4)] * 50
        with ScriptedServer(answers) as server:
            requests = asyncio.run(all_of_them(server.url))
            assert server.most_open == 50
            assert server.connections == 50
        assert [each.request_id for each in requests] == [str(n) for n in range(100)]
        assert {each.usage.completion_tokens for each in requests} == {4}
        assert {each.failure for each in requests} == {None}

    def test_threads_may_share_a_client(self, scripted: Scripted, hello: PlannedRequest) -> None:
        client, server = scripted(*[chat_stream(tokens=2, first_s=0.1)] * 4)
        made: list[record.Request] = []
        threads = [
            threading.Thread(target=lambda: made.append(client.send(hello, request_id="r")))
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [each.failure for each in made] == [None] * 4
        assert server.most_open == 4


class TestPages:
    def test_pages_come_on_connections_of_their_own(
        self, scripted: Scripted, hello: PlannedRequest
    ) -> None:
        client, server = scripted()
        client.send(hello, request_id="r")
        assert "vllm:num_requests_running" in client.get_text("/metrics")
        assert client.post_json("/tokenize", {"prompt": "a b a"})["count"] == 3
        connections = {each.path: each.connection for each in server.requests}
        assert connections["/metrics"] == connections["/tokenize"] == 1
        assert connections["/v1/chat/completions"] == 0

    @pytest.mark.parametrize(
        ("url", "wanted"),
        [
            ("http://10.0.0.1:8000", ssl.CERT_NONE),
            ("https://10.0.0.1:8000", ssl.CERT_REQUIRED),
            ("HTTPS://10.0.0.1:8000", ssl.CERT_REQUIRED),
        ],
    )
    def test_of_a_server_with_tls_are_had_only_from_whom_an_authority_vouches_for(
        self, url: str, wanted: ssl.VerifyMode
    ) -> None:
        transport: Any = Pages(url, headers={}, trust_env=False)._http._transport
        assert transport._pool._ssl_context.verify_mode == wanted

    def test_an_error_status_is_told_with_its_page(self) -> None:
        with (
            ScriptedServer(faults=Faults(no_metrics=True)) as server,
            Client(server.url, model="scripted") as client,
        ):
            with pytest.raises(EngineError) as caught:
                client.get_text("/metrics")
            assert str(caught.value) == (
                f"GET {server.url}/metrics was answered with HTTP 404.\n"
                '\'{"detail":"Not Found"}\'\n'
                "Check that the engine is up and that this address is the engine's."
            )

    def test_a_page_that_is_no_json_is_told(self, scripted: Scripted) -> None:
        client, server = scripted()
        with pytest.raises(EngineError) as caught:
            client.post_json("/health", {})
        assert str(caught.value) == (
            f"POST {server.url}/health was not answered with JSON.\n"
            "''\n"
            "Check that the engine is up and that this address is the engine's."
        )

    def test_a_server_that_is_gone_is_told(self, scripted: Scripted) -> None:
        client, server = scripted()
        server.__exit__()
        with pytest.raises(EngineError) as caught:
            client.get_text("/metrics")
        assert caught.value.what == f"GET {server.url}/metrics was not answered (limit 10 s)."
        assert caught.value.evidence.startswith("ConnectError: ")


class TestLife:
    def test_outside_its_with_block_it_refuses(self, hello: PlannedRequest) -> None:
        client = Client("http://127.0.0.1:1", model="m")
        with pytest.raises(UsageError) as caught:
            client.send(hello, request_id="r")
        assert str(caught.value) == (
            "The client of http://127.0.0.1:1 is not open.\n"
            "It was used outside its with block.\n"
            "Write: with Client(...) as client: client.send(...)"
        )

    def test_it_may_be_closed_twice_and_opened_again(self, hello: PlannedRequest) -> None:
        with ScriptedServer() as server:
            client = Client(server.url, model="scripted")
            for _ in range(2):
                with client:
                    assert client.send(hello, request_id="r").completed
                client.close()

    def test_importing_it_loads_no_http_library(self) -> None:
        probe = "import sys, pytest_llmperf.client; print(*sys.modules)"
        loaded = subprocess.run(
            [sys.executable, "-c", probe], capture_output=True, text=True, check=True
        )
        assert not {"httpx", "httpcore", "anyio", "asyncio"} & set(loaded.stdout.split())

    def test_the_example_of_its_docstring_runs(self) -> None:
        import pytest_llmperf.client as room  # noqa: PLC0415 - for its docstring

        lines = str(room.__doc__).splitlines()
        code = "\n".join(line[4:] for line in lines if line.startswith("    ") or not line)
        with ScriptedServer(model="gemma", behaviour=Behaviour(step_s=0.0)) as server:
            names: dict[str, Any] = {}
            exec(code.replace("http://127.0.0.1:8000", server.url), names)  # noqa: S102 - our own text
        assert names["answer"].completed
        assert names["wait_s"] > 0
