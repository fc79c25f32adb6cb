"""One event of a streamed answer -> what it bears: text by channel, token ids, usage, identity.

Every dialect of the wire is read here; what a whole stream of these amounts to is in ``stream``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from pytest_llmperf.record import Channel
from pytest_llmperf.stream.sse import Event

DONE = "[DONE]"

KNOWN_STRINGS = frozenset(
    {"role", "content", "refusal", "reasoning", "reasoning_content", "name", "id", "type", "object"}
)
"""String fields of a delta whose meaning is known; another one that grows is reported."""

TIMING_FIELDS = frozenset(
    {
        "timings",
        "prompt_progress",
        "metrics",
        "time_info",
        "meta_info",
        "x_groq",
        "total_duration",
        "load_duration",
        "prompt_eval_count",
        "prompt_eval_duration",
        "eval_count",
        "eval_duration",
    }
)
"""Top-level fields in which servers report timings and counts of their own."""


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """What one choice's delta carries. Absent, null and empty text are the same: ``""``."""

    index: int
    role: bool = False
    content: str = ""
    reasoning: str = ""
    tool: str = ""
    """Names and arguments of tool calls, as generated."""
    calls: int = 0
    """Tool calls that begin in this delta."""
    finish: str | None = None
    token_ids: int | None = None
    """How many token ids came with it; ``None`` when the field is absent."""
    ids: tuple[int, ...] = ()
    """The token ids themselves."""
    unknown: dict[str, str] = {}

    @property
    def text(self) -> str:
        """All text of any known channel."""
        return self.reasoning + self.content + self.tool

    @property
    def channel(self) -> Channel:
        """Where the text is: an answer before reasoning, ``hidden`` when there is none."""
        if self.content:
            return "content"
        if self.tool:
            return "tool_call"
        return "reasoning" if self.reasoning else "hidden"


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """What one event carries."""

    at_ns: int
    parts: tuple[Part, ...] = ()
    usage: dict[str, Any] | None = None
    model: str | None = None
    response_id: str | None = None
    system_fingerprint: str | None = None
    timings: dict[str, Any] = {}
    error: str | None = None
    """An error that the server reports inside the stream."""
    error_code: int | None = None
    """The HTTP status that this error states."""
    fault: str | None = None
    """How the event breaks the protocol."""
    done: bool = False

    @property
    def has_text(self) -> bool:
        """Whether any choice has text of a known channel."""
        return any(part.text for part in self.parts)

    @property
    def token_ids(self) -> int | None:
        """Token ids over all choices; ``None`` when no choice has the field."""
        counts = [part.token_ids for part in self.parts if part.token_ids is not None]
        return sum(counts) if counts else None

    @property
    def completion_tokens(self) -> int | None:
        """The usage's output tokens, if this event states them."""
        return count(self.usage, "completion_tokens")


def count(usage: dict[str, Any] | None, *path: str) -> int | None:
    """Look up a whole number in nested usage; ``None`` for anything else, never 0 instead."""
    value: Any = usage
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def read(event: Event) -> Piece:
    """Read one event. Malformed ones become a ``fault``; nothing is raised."""
    if event.data.strip() == DONE:
        return Piece(at_ns=event.at_ns, done=True)
    if event.event == "error":
        return _error(event)
    try:
        body = msgspec.json.decode(event.data)
    except (msgspec.DecodeError, RecursionError) as error:
        fault = f"an event is not JSON ({error}): {event.data[:200]!r}"
        return Piece(at_ns=event.at_ns, fault=fault)
    if not isinstance(body, dict):
        return Piece(at_ns=event.at_ns, fault=f"an event is no object: {event.data[:200]!r}")
    if body.get("error") or body.get("object") == "error":
        return _error(event)
    return _chunk(event.at_ns, body)


def _error(event: Event) -> Piece:
    """The message and the code inside an error as servers nest it, else the whole of it."""
    try:
        body = msgspec.json.decode(event.data)
    except (msgspec.DecodeError, RecursionError):
        body = None
    reported = body.get("error") or body if isinstance(body, dict) else body
    fields = reported if isinstance(reported, dict) else {"message": reported}
    message, code = fields.get("message"), count(fields, "code")
    return Piece(
        at_ns=event.at_ns,
        error=message if isinstance(message, str) else event.data[:500],
        error_code=code if code in range(400, 600) else None,
    )


def _chunk(at_ns: int, body: dict[str, Any]) -> Piece:
    usage = body.get("usage")
    return Piece(
        at_ns=at_ns,
        parts=tuple(_parts(body.get("choices"))),
        usage=usage if isinstance(usage, dict) else None,
        model=_text(body.get("model")) or None,
        response_id=_text(body.get("id")) or None,
        system_fingerprint=_text(body.get("system_fingerprint")) or None,
        timings={
            key: body[key] for key in sorted(TIMING_FIELDS & body.keys()) if body[key] is not None
        },
    )


def _parts(choices: object) -> Iterator[Part]:
    for place, choice in enumerate(choices if isinstance(choices, list) else ()):
        if isinstance(choice, dict):
            yield _part(place, choice)


def _part(place: int, choice: dict[str, Any]) -> Part:
    delta = choice.get("delta")
    delta = delta if isinstance(delta, dict) else {}
    index, ids = choice.get("index"), choice.get("token_ids")
    calls = list(_calls(delta))
    return Part(
        index=index if isinstance(index, int) else place,
        role=bool(delta.get("role")),
        content=_text(delta.get("content"))
        + _text(delta.get("refusal"))
        + _text(choice.get("text")),
        reasoning=_reasoning(delta),
        tool="".join(name + arguments for name, arguments in calls),
        calls=sum(1 for name, _ in calls if name),
        finish=_finish(choice.get("finish_reason")),
        token_ids=len(ids) if isinstance(ids, list) else None,
        ids=tuple(each for each in ids if isinstance(each, int)) if isinstance(ids, list) else (),
        unknown=_unknown(delta),
    )


def _finish(value: object) -> str | None:
    # One server family wraps the reason in an object with its matched stop.
    value = value.get("type") if isinstance(value, dict) else value
    return value if isinstance(value, str) and value else None


def _reasoning(delta: dict[str, Any]) -> str:
    # Proxies copy the text under the other name; the same text twice is one text.
    new, old = _text(delta.get("reasoning")), _text(delta.get("reasoning_content"))
    return new if new == old else new + old


def _calls(delta: dict[str, Any]) -> Iterator[tuple[str, str]]:
    calls = delta.get("tool_calls")
    functions = (
        [call.get("function") for call in calls if isinstance(call, dict)]
        if isinstance(calls, list)
        else []
    )
    for function in [*functions, delta.get("function_call")]:
        if isinstance(function, dict):
            yield _text(function.get("name")), _arguments(function.get("arguments"))


def _arguments(value: object) -> str:
    # Some servers send the arguments as an object, whole, instead of as pieces of JSON text.
    return msgspec.json.encode(value).decode() if isinstance(value, dict) else _text(value)


def _text(value: object) -> str:
    """Text, or the texts of a list of typed parts; anything else is no text."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join(_text(part.get("text")) for part in value if isinstance(part, dict))
    return ""


def _unknown(delta: dict[str, Any]) -> dict[str, str]:
    return {
        key: value
        for key, value in delta.items()
        if key not in KNOWN_STRINGS and isinstance(value, str) and value
    }
