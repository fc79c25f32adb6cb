"""Answers as a script states them: which bytes, when, and how the answer ends.

Sending them is in ``server``; answers that an imagined engine makes up are in ``make_believe``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

Ending = Literal["complete", "cut", "hang"]
"""``complete`` as HTTP has it; ``cut`` breaks the connection; ``hang`` keeps it open and silent."""

STREAM = "text/event-stream; charset=utf-8"


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """One answer to one request."""

    parts: tuple[tuple[float, bytes], ...] = ()
    """Each a wait in seconds and the bytes that are then written at once."""
    status: int = 200
    headers: dict[str, str] = msgspec.field(default_factory=lambda: {"Content-Type": STREAM})
    ending: Ending = "complete"
    before_head_s: float = 0.0
    """How long the status line is held back."""
    as_is: bool = False
    """Write the parts as they are: no status line, no framing; then close."""


def event(body: Any = None, /, **fields: Any) -> bytes:  # noqa: ANN401 - JSON
    """One server-sent event with JSON data, from an object or from keywords."""
    return b"data: " + msgspec.json.encode(fields if body is None else body) + b"\n\n"


def done() -> bytes:
    """The end mark of a stream."""
    return b"data: [DONE]\n\n"


def comment(text: str = "ping") -> bytes:
    """A keep-alive comment, which is no event."""
    return f": {text}\n\n".encode()


def stream(*parts: bytes | tuple[float, bytes], **fields: Any) -> Answer:  # noqa: ANN401 - of Answer
    """A streamed answer of these parts; one without a wait follows at once."""
    timed = tuple(part if isinstance(part, tuple) else (0.0, part) for part in parts)
    return Answer(parts=timed, **fields)


def raw(*parts: bytes | tuple[float, bytes]) -> Answer:
    """Bytes written as they are in place of an HTTP answer."""
    return stream(*parts, as_is=True)


def refusal(status: int, message: str = "refused") -> Answer:
    """An error status with the body that servers of this kind send."""
    body = msgspec.json.encode({"error": {"message": message, "code": status}})
    headers = {"Content-Type": "application/json"}
    return Answer(parts=((0.0, body),), status=status, headers=headers)


def chat_stream(
    *,
    tokens: int = 8,
    gap_s: float = 0.0,
    first_s: float = 0.0,
    cached_tokens: int | None = 0,
    prompt_tokens: int = 100,
    tokens_per_chunk: int = 1,
    model: str = "scripted",
    finish: str = "length",
) -> Answer:
    """A healthy streamed chat: role, chunks with running usage and ids, usage, end mark.

    :param gap_s: between chunks.
    :param first_s: from the role chunk to the first chunk.
    :param cached_tokens: as the usage states them; ``None`` leaves the details out.
    """
    sizes = [min(tokens_per_chunk, tokens - n) for n in range(0, tokens, tokens_per_chunk)]
    chunks = [(gap_s if place else first_s, size) for place, size in enumerate(sizes)]
    parts: list[tuple[float, bytes]] = [(0.0, opening(model, prompt_tokens))]
    told = 0
    for wait_s, size in chunks:
        ids = range(told, told + size)
        told += size
        text = "".join(f" w{number}" for number in ids)
        end = finish if told == tokens else None
        body = chunk(model, text, list(ids), usage(prompt_tokens, told), finish=end)
        parts.append((wait_s, body))
    parts.append((0.0, closing(model, usage(prompt_tokens, tokens, cached_tokens))))
    parts.append((0.0, done()))
    return Answer(parts=tuple(parts))


def usage(prompt: int, completion: int, cached: int | None = None) -> dict[str, Any]:
    """Usage as servers state it; details only where ``cached`` is known."""
    stated: dict[str, Any] = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }
    return stated | ({} if cached is None else {"prompt_tokens_details": {"cached_tokens": cached}})


def opening(model: str, prompt_tokens: int, response_id: str = "chatcmpl-0") -> bytes:
    """The role chunk with which a chat opens."""
    choice = {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
    return _body(model, response_id, [choice], usage(prompt_tokens, 0))


def chunk(
    model: str,
    text: str,
    ids: Sequence[int],
    stated: dict[str, Any],
    *,
    finish: str | None = None,
    response_id: str = "chatcmpl-0",
) -> bytes:
    """A chunk of content with its token ids and running usage."""
    choice = {
        "index": 0,
        "delta": {"content": text},
        "finish_reason": finish,
        "token_ids": list(ids),
    }
    return _body(model, response_id, [choice], stated)


def closing(model: str, stated: dict[str, Any], response_id: str = "chatcmpl-0") -> bytes:
    """The usage chunk after everything, without choices."""
    return _body(model, response_id, [], stated)


def _body(model: str, response_id: str, choices: list[Any], stated: dict[str, Any]) -> bytes:
    return event(
        id=response_id,
        object="chat.completion.chunk",
        model=model,
        choices=choices,
        usage=stated,
    )
