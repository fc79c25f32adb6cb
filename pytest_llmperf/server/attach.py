"""Take a server that somebody else runs: the twin of ``launch`` with the same face.

Nothing is started and nothing is stopped here.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from signal import Signals
from typing import Any
from urllib.parse import urlsplit

from pytest_llmperf import record
from pytest_llmperf.errors import EngineError, UsageError
from pytest_llmperf.server import probe, readiness
from pytest_llmperf.server.launch import recheck

_LIST_S = 10.0
_GENERATE_S = 120.0
_FACTS_S = 10.0
_OK = 200
_KEY_WANTED = (401, 403)


class AttachedEngine:
    """A server that somebody else runs, found ready."""

    exit_code: int | None = None
    """Never known: the process is not ours."""

    def __init__(self, engine: record.Engine) -> None:
        self.engine = engine

    @property
    def url(self) -> str:
        """Where it answers, without ``/v1``."""
        return self.engine.url

    @property
    def model(self) -> str:
        """The name it serves its model under."""
        return self.engine.served_model

    def is_alive(self) -> bool:
        """Whether it answers and still serves the model that it was attached for."""
        answer = probe.ask(self.url, "/v1/models", timeout_s=_LIST_S)
        return any(card["id"] == self.model for card in probe.models(answer))

    def is_healthy(self) -> bool:
        """The same: what more its health page says is its owner's concern."""
        return self.is_alive()

    def how_it_ended(self) -> str:
        """What is seen of its end."""
        return f"{self.url} no longer answers for {self.model}"

    def log_tail(self, lines: int) -> str:  # noqa: ARG002 - the face it shares with its twin
        """Nothing: the log is its owner's."""
        return ""

    def let_go(self) -> None:
        """Nothing: it is not ours to end."""

    def signal(self, number: Signals) -> tuple[int, ...]:
        """Nothing is sent: it is not ours.

        :raises UsageError: always.
        """
        raise UsageError(
            f"{number.name} cannot be sent to {self.engine.name} at {self.url}.",
            "It is attached: its processes belong to somebody else.",
            "Let the profile boot the servers (run without --llmperf-attach) to make one fail.",
        )

    def check(self) -> None:
        """Ask for a short generation again.

        :raises EngineError: it does not answer sanely.
        """
        recheck(self.engine)


@contextmanager
def attach(
    name: str,
    url: str,
    *,
    declared: record.Declared | None = None,
    model: str | None = None,
    tools: bool = True,
    subject: dict[str, Any] | None = None,
    profile: str | None = None,
    round_number: int = 0,
    metrics: str | None = None,
) -> Iterator[AttachedEngine]:
    """Yield the server at ``url``, found ready by the same test as a boot of our own.

    :param model: which of its models, where it lists several.
    :param tools: whether the test of readiness sends tools.
    :param metrics: the address of its metrics page; ``None``: ``/metrics`` of its own.
    :raises UsageError: ``url`` is no address, or which model is meant is not clear.
    :raises EngineError: nothing answers there, or not as an engine must.
    """
    address = _address(name, url)
    card = _card(name, address, model)
    request = probe.chat(card["id"], tools=tools)
    answer = probe.ask(address, "/v1/chat/completions", payload=request, timeout_s=_GENERATE_S)
    if answer.status != _OK:
        raise readiness.refused(name, address, answer)
    made = probe.generation(answer.body)
    if (wrong := probe.what_is_wrong(made)) is not None:
        raise readiness.insane(name, wrong, made)
    page = None if metrics is None else _page(name, metrics)
    facts = probe.facts(address, card, made, timeout_s=_FACTS_S, metrics=page)
    yield AttachedEngine(
        record.Engine(
            boot_id=f"{name}-attached-{secrets.token_hex(4)}",
            name=name,
            round=round_number,
            url=address,
            metrics_url=page,
            served_model=card["id"],
            attached=True,
            profile=profile,
            declared=declared or record.Declared(),
            facts=facts,
            subject=(subject or {}) | {"engine_version": facts.version, "model": card.get("root")},
        )
    )


def _address(name: str, url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(
            f"Engine {name} cannot be attached to {url!r}.",
            "That is no address of a server.",
            "Write it as http://127.0.0.1:8000.",
        )
    return url.rstrip("/").removesuffix("/v1").rstrip("/")


def _page(name: str, metrics: str) -> str:
    """The whole address of a metrics page that was stated, seen to be there.

    :raises EngineError: it cannot be read; without it nothing of the server could be proven.
    """
    page = metrics if urlsplit(metrics).path.strip("/") else f"{metrics.rstrip('/')}/metrics"
    answer = probe.ask(page, "", timeout_s=_LIST_S)
    if answer.status != _OK:
        seen = answer.body if answer.status is None else f"It says HTTP {answer.status}."
        raise EngineError(
            f"Engine {name} cannot be attached: its metrics page {page} cannot be read.",
            seen,
            f"Correct metrics of {name} under [attach] in the profile, or leave it out where the "
            "page is at /metrics of the server's own address.",
        )
    return page


def _card(name: str, url: str, model: str | None) -> dict[str, Any]:
    answer = probe.ask(url, "/v1/models", timeout_s=_LIST_S)
    cards = probe.models(answer) if answer.status == _OK else []
    if not cards:
        raise _unanswered(name, url, answer)
    # Adapters are listed beside the model they belong to, which is their parent.
    chosen = [card for card in cards if (card["id"] == model if model else not card.get("parent"))]
    if len(chosen) != 1:
        raise UsageError(
            f"Which model of {url} engine {name} means is not clear.",
            f"It lists {', '.join(card['id'] for card in cards)}"
            + (f"; asked for: {model}." if model else "."),
            "Name one that it lists, or serve one model at that address.",
        )
    return chosen[0]


def _unanswered(name: str, url: str, answer: probe.Answer) -> EngineError:
    if answer.status is None:
        seen, next_step = answer.body, "Start it, or correct the address."
    elif answer.status in _KEY_WANTED:
        seen = f"It is alive and wants a key: HTTP {answer.status}."
        next_step = "Serve it without a key on an address of its own for the benchmark."
    else:
        seen = f"/v1/models says HTTP {answer.status}: {answer.said(300)}"
        next_step = "Give the address of a server that speaks the OpenAI API."
    return EngineError(f"Engine {name} cannot be attached: {url} is not ready.", seen, next_step)
