"""One request as a workload plans it, and the body that goes over the wire for it.

Which requests a workload plans is in ``workload``; sending one is in ``client``.
"""

from __future__ import annotations

import hashlib
from typing import Any, Literal

import msgspec

from pytest_llmperf.errors import UsageError

RESERVED = frozenset(
    {
        "model",
        "messages",
        "prompt",
        "tools",
        "max_tokens",
        "temperature",
        "seed",
        "stream",
        "stream_options",
        "return_token_ids",
    }
)
"""Body fields that are written here; ``extra`` may hold any other."""

_NEXT = "Correct the workload that plans it."


class PlannedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request to send.

    :raises UsageError: if the parts do not fit the endpoint, or ``extra`` repeats a field of ours.
    """

    prompt: str
    """Its name in the workload; arms are paired by it."""
    endpoint: Literal["chat", "completions"] = "chat"
    messages: tuple[dict[str, Any], ...] = ()
    """The conversation, for ``chat``."""
    tools: tuple[dict[str, Any], ...] = ()
    """Tool schemas, for ``chat``."""
    text: str | None = None
    """The raw prompt, for ``completions``."""
    max_tokens: int
    temperature: float = 0.0
    seed: int | None = None
    content_class: str | None = None
    """What kind of output it asks for; never sent."""
    extra: dict[str, Any] = {}
    """Further fields of the body, such as ``ignore_eos`` or ``tool_choice``."""
    private: bool = False
    """Its words are somebody's: none of them, nor of its answer, is shown or stored."""

    def __repr__(self) -> str:
        if not self.private:
            return super().__repr__()
        return f"PlannedRequest(prompt={self.prompt!r}, private, max_tokens={self.max_tokens})"

    def __post_init__(self) -> None:
        """Refuse what could not be sent, while the workload is being planned."""
        fault = self._fault()
        if fault is not None:
            raise UsageError(f"The planned request {self.prompt!r} cannot be sent.", fault, _NEXT)

    def _fault(self) -> str | None:
        repeated = sorted(RESERVED & self.extra.keys())
        if repeated:
            return f"extra repeats fields that are set elsewhere: {', '.join(repeated)}."
        if self.max_tokens < 1:
            return f"max_tokens is {self.max_tokens}; it must be at least 1."
        if self.endpoint == "chat":
            return self._chat_fault()
        if self.text is None:
            return "A completion needs text; it is None."
        if self.messages or self.tools:
            return "A completion has no messages and no tools."
        return None

    def _chat_fault(self) -> str | None:
        if not self.messages:
            return "A chat needs at least one message; it has none."
        if self.text is not None:
            return "A chat has messages, not text."
        return None

    @property
    def path(self) -> str:
        """The path it is posted to, below the server's address."""
        return "/v1/chat/completions" if self.endpoint == "chat" else "/v1/completions"

    @property
    def has_prompt(self) -> bool:
        """Whether anything is sent for the model to read."""
        return bool(self.messages) or bool(self.text)

    def body(self, model: str, *, token_ids: bool) -> dict[str, Any]:
        """Give the JSON body: streaming, with running usage, and token ids when asked for."""
        body: dict[str, Any] = {"model": model, **self._prompt_fields()}
        body["max_tokens"] = self.max_tokens
        body["temperature"] = self.temperature
        if self.seed is not None:
            body["seed"] = self.seed
        body |= self.extra
        body["stream"] = True
        body["stream_options"] = {"include_usage": True, "continuous_usage_stats": True}
        if token_ids:
            body["return_token_ids"] = True
        return body

    def _prompt_fields(self) -> dict[str, Any]:
        if self.endpoint == "completions":
            return {"prompt": self.text}
        fields: dict[str, Any] = {"messages": list(self.messages)}
        if self.tools:
            fields["tools"] = list(self.tools)
        return fields

    def digest(self) -> str:
        """SHA-256 (hex) of the body's canonical JSON, without the model's name and token ids.

        Equal for two requests that ask the same of any model, however the fields were ordered.
        """
        sent = self.body("", token_ids=False)
        del sent["model"]
        return hashlib.sha256(msgspec.json.encode(sent, order="deterministic")).hexdigest()
