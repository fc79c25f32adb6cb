"""Every way in which a server or a network fails us ends in a record, never in an exception."""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
from collections.abc import Callable
from datetime import timedelta

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_llmperf import record
from pytest_llmperf.client import Client
from pytest_llmperf.planned import PlannedRequest
from pytest_llmperf.testing import (
    Answer,
    Faults,
    ScriptedServer,
    chat_stream,
    comment,
    raw,
    refusal,
    stream,
)

Scripted = Callable[..., tuple[Client, ScriptedServer]]
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def cut_short(answer: Answer, parts: int, ending: str) -> Answer:
    return stream(*answer.parts[:parts], ending=ending)


def kind(request: record.Request) -> str | None:
    return None if request.failure is None else request.failure.kind


def interrupt_when_open(server: ScriptedServer) -> None:
    """Press Ctrl-C, as it were, as soon as a generation is under way."""
    main = threading.main_thread().ident
    assert main is not None

    def press() -> None:
        if server.wait_open(1):
            signal.pthread_kill(main, signal.SIGINT)

    threading.Thread(target=press).start()


class TestConnect:
    def test_nobody_listens(self, hello: PlannedRequest) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with Client(url, model="m") as client:
            request = client.send(hello, request_id="r")
        assert kind(request) == "connect"
        assert request.failure is not None
        assert "Connection refused" in request.failure.detail
        assert (request.stamps.sent_ns, request.http_status) == (None, None)
        assert request.stamps.closed_ns is not None
        assert request.connect_ns is not None

    def test_the_name_does_not_resolve(self, hello: PlannedRequest) -> None:
        with Client("http://no-such-host.invalid", model="m") as client:
            assert kind(client.send(hello, request_id="r")) == "connect"

    def test_the_connection_is_not_made_in_time(self, hello: PlannedRequest) -> None:
        # A listener whose queue is full answers no further connection.
        with socket.socket() as full, socket.socket() as first, socket.socket() as second:
            full.bind(("127.0.0.1", 0))
            full.listen(0)
            for each in (first, second):
                each.setblocking(False)
                each.connect_ex(full.getsockname())
            url = f"http://127.0.0.1:{full.getsockname()[1]}"
            with Client(url, model="m", connect_s=0.1) as client:
                assert kind(client.send(hello, request_id="r")) == "connect"


class TestRefused:
    def test_the_reason_is_kept(self, scripted: Scripted, hello: PlannedRequest) -> None:
        client, _ = scripted(refusal(400, "tool parser not set"))
        request = client.send(hello, request_id="r")
        assert request.http_status == 400
        assert request.failure == record.Failure(
            kind="refused",
            detail='HTTP 400: {"error":{"message":"tool parser not set","code":400}}',
        )
        assert request.stamps.first_byte_ns is not None
        assert request.stamps.first_event_ns is None
        assert request.chunks == ()

    def test_an_endless_reason_is_cut(self, scripted: Scripted, hello: PlannedRequest) -> None:
        parts = tuple((0.0, b"x" * 1000) for _ in range(5))
        client, _ = scripted(Answer(status=500, parts=parts, ending="hang"))
        request = client.send(hello, request_id="r")
        assert request.failure is not None
        assert request.failure.detail == "HTTP 500: " + "x" * 4096

    def test_the_connection_is_good_for_the_next(
        self, scripted: Scripted, hello: PlannedRequest
    ) -> None:
        client, server = scripted(refusal(503), chat_stream())
        assert [kind(client.send(hello, request_id=each)) for each in "ab"] == ["refused", None]
        assert server.connections == 1


class TestBroken:
    def test_before_the_first_byte(self, scripted: Scripted, hello: PlannedRequest) -> None:
        client, _ = scripted(raw())
        request = client.send(hello, request_id="r")
        assert kind(request) == "reset"
        assert request.stamps.sent_ns is not None
        assert request.stamps.first_byte_ns is None

    def test_in_mid_stream_with_everything_that_came(
        self, scripted: Scripted, hello: PlannedRequest
    ) -> None:
        client, _ = scripted(cut_short(chat_stream(tokens=8), 4, "cut"))
        request = client.send(hello, request_id="r")
        assert kind(request) == "interrupted"
        assert [chunk.tokens for chunk in request.chunks] == [1, 1, 1]
        assert request.usage.completion_tokens == 3
        assert request.stamps.last_token_ns == request.chunks[-1].at_ns
        assert request.stamps.closed_ns is not None

    def test_after_the_end_mark_it_was_complete(
        self, scripted: Scripted, hello: PlannedRequest
    ) -> None:
        client, _ = scripted(cut_short(chat_stream(tokens=2), 99, "cut"))
        request = client.send(hello, request_id="r")
        assert request.failure is None
        assert [each.split(":")[0] for each in request.warnings] == ["open end"]

    def test_an_end_without_an_end_mark_is_incomplete(
        self, scripted: Scripted, hello: PlannedRequest
    ) -> None:
        client, _ = scripted(cut_short(chat_stream(tokens=8), 4, "complete"))
        assert kind(client.send(hello, request_id="r")) == "incomplete"

    def test_the_engine_dies_between_requests(self, hello: PlannedRequest) -> None:
        with (
            ScriptedServer(faults=Faults(die_after=1)) as server,
            Client(server.url, model="scripted") as client,
        ):
            kinds = [kind(client.send(hello, request_id=each)) for each in "abc"]
        assert kinds == [None, "reset", "connect"]


class TestProtocol:
    @pytest.mark.parametrize(
        "sent",
        [
            b"SSH-2.0-OpenSSH\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
            HEAD + b"zz\r\nabc\r\n",
        ],
    )
    def test_what_is_no_http_is_told_as_such(
        self, scripted: Scripted, hello: PlannedRequest, sent: bytes
    ) -> None:
        client, _ = scripted(raw(sent))
        assert kind(client.send(hello, request_id="r")) == "protocol"

    def test_an_answer_that_is_one_json_is_no_stream(
        self, scripted: Scripted, hello: PlannedRequest
    ) -> None:
        whole = Answer(headers={"Content-Type": "application/json"}, parts=((0.0, b"{}"),))
        client, _ = scripted(whole)
        assert client.send(hello, request_id="r").failure == record.Failure(
            kind="protocol", detail="the answer is 'application/json', not a stream of events"
        )

    def test_an_answer_that_is_compressed_was_not_asked_for(
        self, scripted: Scripted, hello: PlannedRequest
    ) -> None:
        headers = {"Content-Type": "text/event-stream", "Content-Encoding": "gzip"}
        client, _ = scripted(Answer(headers=headers, parts=((0.0, b"\x1f\x8b"),)))
        assert client.send(hello, request_id="r").failure == record.Failure(
            kind="protocol", detail="the answer is encoded as 'gzip' though identity was asked"
        )


class TestPatience:
    def test_silence_is_a_stall_and_what_came_is_kept(
        self, scripted: Scripted, hello: PlannedRequest
    ) -> None:
        client, _ = scripted(cut_short(chat_stream(tokens=8), 4, "hang"), stall_s=0.3)
        request = client.send(hello, request_id="r")
        assert request.failure == record.Failure(kind="stalled", detail="no event for 0.3 s")
        assert len(request.chunks) == 3

    def test_silence_before_the_head_is_a_stall(self, hello: PlannedRequest) -> None:
        with (
            ScriptedServer(faults=Faults(hang=True)) as server,
            Client(server.url, model="scripted", stall_s=0.1) as client,
        ):
            request = client.send(hello, request_id="r")
        assert kind(request) == "stalled"
        assert request.stamps.first_byte_ns is None

    def test_comments_are_no_progress_s10(self, scripted: Scripted, hello: PlannedRequest) -> None:
        pings = [(0.02, comment()) for _ in range(50)]
        client, _ = scripted(stream(*chat_stream(tokens=2).parts[:2], *pings), stall_s=0.3)
        request = client.send(hello, request_id="r")
        assert request.failure == record.Failure(kind="stalled", detail="no event for 0.3 s")
        assert len(request.chunks) == 1

    def test_events_are_progress(self, scripted: Scripted, hello: PlannedRequest) -> None:
        client, _ = scripted(chat_stream(tokens=9, gap_s=0.06), stall_s=0.4)
        assert client.send(hello, request_id="r").failure is None

    def test_comments_do_end_the_silence_of_a_socket_s10(
        self, scripted: Scripted, hello: PlannedRequest
    ) -> None:
        pings = [(0.06, comment()) for _ in range(9)]
        client, _ = scripted(stream(*pings, *chat_stream(tokens=2).parts), silence_s=0.4)
        assert client.send(hello, request_id="r").failure is None

    def test_a_silent_socket_is_a_stall(self, scripted: Scripted, hello: PlannedRequest) -> None:
        client, _ = scripted(stream(comment(), ending="hang"), silence_s=0.1)
        assert client.send(hello, request_id="r").failure == record.Failure(
            kind="stalled", detail="not a byte for 0.1 s"
        )

    def test_a_stream_that_takes_too_long_is_timed_out_and_kept(
        self, scripted: Scripted, hello: PlannedRequest
    ) -> None:
        client, _ = scripted(chat_stream(tokens=100, gap_s=0.02), timeout_s=0.5, stall_s=60.0)
        request = client.send(hello, request_id="r")
        assert request.failure == record.Failure(kind="timeout", detail="not complete after 0.5 s")
        assert 1 <= len(request.chunks) < 100

    def test_a_connection_left_open_after_the_end_mark_is_only_doubtful(
        self, scripted: Scripted, hello: PlannedRequest
    ) -> None:
        client, _ = scripted(cut_short(chat_stream(tokens=2), 99, "hang"), stall_s=0.3)
        request = client.send(hello, request_id="r")
        assert request.failure is None
        assert request.warnings == ("open end: after [DONE], stalled: no event for 0.3 s",)

    def test_the_next_request_is_not_harmed(
        self, scripted: Scripted, hello: PlannedRequest
    ) -> None:
        client, server = scripted(stream(ending="hang"), chat_stream(), stall_s=0.1)
        assert [kind(client.send(hello, request_id=each)) for each in "ab"] == ["stalled", None]
        assert server.wait_open(0)
        assert server.connections == 2


class TestLeaving:
    def test_an_interrupted_caller_closes_its_connection_first(
        self, scripted: Scripted, hello: PlannedRequest
    ) -> None:
        client, server = scripted(cut_short(chat_stream(tokens=8), 4, "hang"))
        interrupt_when_open(server)
        with pytest.raises(KeyboardInterrupt):
            client.send(hello, request_id="r")
        assert server.wait_open(0)
        (left,) = client.cancelled
        assert left.request_id == "r"
        assert left.failure == record.Failure(
            kind="cancelled", detail="the caller left before the answer was complete"
        )

    def test_after_it_the_client_still_works(
        self, scripted: Scripted, hello: PlannedRequest
    ) -> None:
        client, server = scripted(stream(ending="hang"), chat_stream())
        interrupt_when_open(server)
        with pytest.raises(KeyboardInterrupt):
            client.send(hello, request_id="a")
        assert client.send(hello, request_id="b").failure is None

    def test_a_cancelled_task_keeps_what_it_saw(self, hello: PlannedRequest) -> None:
        async def leave(url: str) -> list[record.Request]:
            async with Client(url, model="scripted") as client:
                with anyio.move_on_after(0.5):
                    await client.asend(hello, request_id="r")
                return client.cancelled

        with ScriptedServer([cut_short(chat_stream(tokens=8), 4, "hang")]) as server:
            (left,) = asyncio.run(leave(server.url))
            assert server.wait_open(0)
        assert kind(left) == "cancelled"
        assert len(left.chunks) == 3


class TestNothingIsRaised:
    @settings(
        max_examples=25,
        deadline=timedelta(seconds=5),
        suppress_health_check=[HealthCheck.function_scoped_fixture],
    )
    @given(
        st.lists(
            st.one_of(st.binary(max_size=40), st.just(HEAD), st.just(b"5\r\ndata:\r\n")), max_size=5
        )
    )
    def test_whatever_bytes_a_server_sends(self, hello: PlannedRequest, sent: list[bytes]) -> None:
        with (
            ScriptedServer([raw(*sent)]) as server,
            Client(server.url, model="scripted", timeout_s=2.0) as client,
        ):
            request = client.send(hello, request_id="r")
        assert request.failure is not None
        assert request.stamps.closed_ns is not None
