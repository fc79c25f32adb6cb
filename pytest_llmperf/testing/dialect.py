"""How one generation request wants its streamed answer put: chat or completion, usage, token ids.

What is generated is decided in ``make_believe``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pytest_llmperf.testing import scripts
from pytest_llmperf.testing.make_believe import Turn
from pytest_llmperf.testing.scripts import event


class Dialect:
    """The chunks of one answer, as vLLM words them for this request."""

    def __init__(self, body: dict[str, Any], turn: Turn, *, model: str, has_chat: bool) -> None:
        options = body.get("stream_options") or {}
        self._turn = turn
        self._model = model
        self._kind = "chat.completion.chunk" if has_chat else "text_completion"
        self._has_chat = has_chat
        self._has_ids = bool(body.get("return_token_ids"))
        self._has_usage = bool(options.get("include_usage"))
        self._has_running = self._has_usage and bool(options.get("continuous_usage_stats"))

    def opening(self) -> bytes:
        """The role chunk; a completion has none."""
        if not self._has_chat:
            return b""
        choice = {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
        return self._event([choice], self._running(0))

    def chunk(self, text: str, ids: Sequence[int], finish: str | None) -> bytes:
        """What one step generated."""
        choice: dict[str, Any] = {"index": 0, "finish_reason": finish}
        choice |= {"delta": {"content": text}} if self._has_chat else {"text": text}
        if self._has_ids:
            choice["token_ids"] = list(ids)
        return self._event([choice], self._running(len(self._turn.made)))

    def closing(self, stated: dict[str, Any]) -> bytes:
        """The usage chunk after everything, where it was asked for."""
        return self._event([], {"usage": stated}) if self._has_usage else b""

    def _running(self, made: int) -> dict[str, Any]:
        if not self._has_running:
            return {}
        return {"usage": scripts.usage(len(self._turn.prompt), made)}

    def _event(self, choices: list[Any], more: dict[str, Any]) -> bytes:
        body = {"id": f"gen-{self._turn.number}", "object": self._kind, "model": self._model}
        return event({**body, "choices": choices, **more})
