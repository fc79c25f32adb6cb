from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from pytest_llmperf.errors import EngineError, UsageError
from pytest_llmperf.record import Declared
from pytest_llmperf.server import attach as room
from pytest_llmperf.server import probe, readiness
from pytest_llmperf.server.attach import attach
from pytest_llmperf.server.launch import LaunchedEngine
from pytest_llmperf.server.probe import Answer
from pytest_llmperf.spec import EngineSpec

Spec = Callable[..., EngineSpec]
Boot = Callable[..., AbstractContextManager[LaunchedEngine]]


@pytest.mark.parametrize("ending", ["", "/", "/v1", "/v1/"])
def test_an_address_may_end_as_clients_write_it(ending: str) -> None:
    assert room._address("gemma", f"http://host:8000{ending}") == "http://host:8000"


def test_a_running_server_is_taken_as_it_is(spec: Spec, boot: Boot) -> None:
    with boot(spec()) as theirs:
        promised = Declared(prefix_caching=True)
        with attach("gemma", theirs.url, declared=promised) as running:
            assert running.engine.attached
            assert running.url == theirs.url
            assert running.model == theirs.model
            assert running.engine.declared == promised
            assert running.engine.facts == theirs.engine.facts
            assert running.engine.pid is None
            assert running.exit_code is None
            assert running.log_tail(3) == ""
            assert running.is_alive()
            running.check()
        assert theirs.is_alive()
    assert not running.is_alive()
    assert not running.is_healthy()
    assert running.how_it_ended() == f"{theirs.url} no longer answers for {theirs.model}"


def test_a_dead_address_is_refused_with_its_reason() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    with pytest.raises(EngineError) as dead, attach("gemma", url):
        pass
    assert str(dead.value) == (
        f"Engine gemma cannot be attached: {url} is not ready.\n"
        "ConnectionRefusedError: [Errno 111] Connection refused\n"
        "Start it, or correct the address."
    )


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "ftp://host", "", "http://"])
def test_what_is_no_address_is_a_usage_error(url: str) -> None:
    with pytest.raises(UsageError) as wrong, attach("gemma", url):
        pass
    assert str(wrong.value) == (
        f"Engine gemma cannot be attached to {url!r}.\n"
        "That is no address of a server.\n"
        "Write it as http://127.0.0.1:8000."
    )


def test_a_key_that_is_wanted_means_alive(spec: Spec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "ask", lambda *_, **__: Answer(status=401, body="no"))
    with pytest.raises(EngineError) as wants, attach("gemma", "http://host"):
        pass
    assert str(wants.value) == (
        "Engine gemma cannot be attached: http://host is not ready.\n"
        "It is alive and wants a key: HTTP 401.\n"
        "Serve it without a key on an address of its own for the benchmark."
    )


def test_something_else_that_answers_is_no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    page = "<!DOCTYPE html>\n<style>p {margin: 0}</style>\n<p>A\n  page of <b>ours</b></p>"
    monkeypatch.setattr(probe, "ask", lambda *_, **__: Answer(status=200, body=page))
    with pytest.raises(EngineError) as other, attach("gemma", "http://host"):
        pass
    assert str(other.value) == (
        "Engine gemma cannot be attached: http://host is not ready.\n"
        "/v1/models says HTTP 200: A page of ours\n"
        "Give the address of a server that speaks the OpenAI API."
    )


def test_several_models_need_a_choice_and_adapters_do_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    page = '{"data": [{"id": "a"}, {"id": "b"}, {"id": "lora", "parent": "a"}]}'
    monkeypatch.setattr(probe, "ask", lambda *_, **__: Answer(status=200, body=page))
    with pytest.raises(UsageError) as unclear, attach("gemma", "http://host"):
        pass
    assert str(unclear.value) == (
        "Which model of http://host engine gemma means is not clear.\n"
        "It lists a, b, lora.\n"
        "Name one that it lists, or serve one model at that address."
    )
    assert room._card("gemma", "http://host", "lora")["id"] == "lora"
    with pytest.raises(UsageError, match="asked for: c"):
        room._card("gemma", "http://host", "c")


@pytest.mark.parametrize(
    ("behaviour", "message"),
    [("silent", "TimeoutError"), ("garbage", "nothing sane"), ("no-tools", "HTTP 400")],
)
def test_an_attached_server_has_to_generate_sanely_as_well(
    spec: Spec, boot: Boot, monkeypatch: pytest.MonkeyPatch, behaviour: str, message: str
) -> None:
    monkeypatch.setattr(room, "_GENERATE_S", 0.5)
    # Our own launch of it must not notice, so that the server to attach to is up.
    generated = probe.generation("")
    monkeypatch.setattr(readiness, "_generate", lambda _: generated)
    with boot(spec(behaviour)) as theirs, pytest.raises(EngineError, match=message):
        room.attach("gemma", theirs.url).__enter__()
