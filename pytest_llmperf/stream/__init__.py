"""Stamped events of one streamed answer -> the fields of its record; pure.

Bytes become events in ``sse``, events are read one by one in ``delta``, their tokens are counted in
``tokens``; the network and the clock are in ``client``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from pytest_llmperf.record import Answerer, Chunk, Failure, TokenSource, Usage
from pytest_llmperf.stream import doubt
from pytest_llmperf.stream.delta import Part, Piece, count, read
from pytest_llmperf.stream.repetition import repetition
from pytest_llmperf.stream.sse import Event
from pytest_llmperf.stream.tokens import Borne, borne, total_tokens

_BAD_ENDINGS = frozenset({"error", "abort"})
"""Finish reasons by which a server says that it gave up."""


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """What one stream says, in the terms of ``record.Request``."""

    first_event_ns: int | None = None
    first_token_ns: int | None = None
    first_visible_ns: int | None = None
    first_answer_ns: int | None = None
    last_token_ns: int | None = None
    chunks: tuple[Chunk, ...] = ()
    usage: Usage = Usage()
    tokens_from: TokenSource = "unknown"
    finish_reason: str | None = None
    answered_by: Answerer = Answerer()
    server_timings: dict[str, Any] | None = None
    failure: Failure | None = None
    warnings: tuple[str, ...] = ()
    text: str = ""
    """All text in the order in which it came, of every channel."""
    output_digest: str | None = None
    repetition: float | None = None


def read_stream(
    events: Sequence[Event],
    *,
    has_prompt: bool = True,
    leftover: bytes = b"",
    broken: Failure | None = None,
) -> Reading:
    """Read a whole stream.

    :param events: in the order of arrival, each stamped at the read that completed it.
    :param has_prompt: whether anything was sent for the model to read.
    :param leftover: bytes of an event that was cut off at the end.
    :param broken: how the transport failed, if it did.
    """
    pieces = [read(event) for event in events]
    tokens = borne(pieces)
    usage = _usage(pieces)
    chunks = _chunks(pieces, tokens)
    warnings = doubt.doubts(pieces, tokens, usage, has_prompt=has_prompt)
    return Reading(
        first_event_ns=events[0].at_ns if events else None,
        first_token_ns=chunks[0].at_ns if chunks else None,
        first_visible_ns=_first(pieces, lambda part: bool(part.text)),
        first_answer_ns=_first(pieces, lambda part: bool(part.content or part.tool)),
        last_token_ns=chunks[-1].at_ns if chunks else None,
        chunks=chunks,
        usage=usage,
        tokens_from=_source(usage, chunks, tokens),
        finish_reason=_finish_reason(pieces),
        answered_by=_answerer(pieces),
        server_timings=_timings(pieces),
        failure=next(_failures(pieces, tokens, leftover=leftover, broken=broken), None),
        warnings=(*warnings, *_endings(pieces, leftover=leftover, broken=broken)),
        text="".join(part.text for piece in pieces for part in piece.parts),
        output_digest=_digest(pieces),
        repetition=_repetition(pieces),
    )


def _usage(pieces: Sequence[Piece]) -> Usage:
    """The last known value of each count; a later null or a later silence takes nothing back."""

    def last(*path: str) -> int | None:
        found = [value for p in pieces if (value := count(p.usage, *path)) is not None]
        return found[-1] if found else None

    return Usage(
        prompt_tokens=last("prompt_tokens"),
        completion_tokens=last("completion_tokens"),
        cached_tokens=last("prompt_tokens_details", "cached_tokens"),
    )


def _chunks(pieces: Sequence[Piece], tokens: Borne) -> tuple[Chunk, ...]:
    return tuple(
        Chunk(at_ns=piece.at_ns, tokens=number, channel=_channel(piece))
        for piece, bears, number in zip(pieces, tokens.bears, tokens.tokens, strict=True)
        if bears
    )


def _channel(piece: Piece) -> Any:  # noqa: ANN401 - a literal type that max() cannot keep
    channels = [part.channel for part in piece.parts if part.text]
    return channels[0] if channels else "hidden"


def _first(pieces: Sequence[Piece], holds: Callable[[Part], bool]) -> int | None:
    return next((p.at_ns for p in pieces if any(holds(part) for part in p.parts)), None)


def _source(usage: Usage, chunks: Sequence[Chunk], tokens: Borne) -> TokenSource:
    if tokens.fall is not None:
        return "unknown"
    if usage.completion_tokens is not None:
        return "usage"
    return "unknown" if total_tokens(chunks) is None else "token_ids"


def _finish_reason(pieces: Sequence[Piece]) -> str | None:
    reasons = [part.finish for piece in pieces for part in piece.parts if part.finish]
    return reasons[-1] if reasons else None


def _answerer(pieces: Sequence[Piece]) -> Answerer:
    """Who began to answer; the fingerprint comes on the last chunk where a server has one."""
    return Answerer(
        model=next((piece.model for piece in pieces if piece.model), None),
        response_id=next((piece.response_id for piece in pieces if piece.response_id), None),
        system_fingerprint=next(
            (p.system_fingerprint for p in reversed(pieces) if p.system_fingerprint), None
        ),
    )


def _timings(pieces: Sequence[Piece]) -> dict[str, Any] | None:
    timings: dict[str, Any] = {}
    for piece in pieces:
        timings |= piece.timings
    return timings or None


def _is_done(pieces: Sequence[Piece]) -> bool:
    return any(piece.done for piece in pieces)


def _failures(
    pieces: Sequence[Piece], tokens: Borne, *, leftover: bytes, broken: Failure | None
) -> Iterator[Failure]:
    """The server's own error, then the transport's, then a broken protocol, then a missing end."""
    finish = _finish_reason(pieces)
    for piece in pieces:
        if piece.error is not None:
            yield Failure(kind="server_error", detail=piece.error, code=piece.error_code)
    if broken is not None and not _is_done(pieces):
        yield broken
    if finish in _BAD_ENDINGS:
        yield Failure(kind="server_error", detail=f"the finish reason is {finish!r}")
    for fault in _protocol_faults(pieces, tokens):
        yield Failure(kind="protocol", detail=fault)
    if finish is None and not _is_done(pieces):
        yield Failure(kind="incomplete", detail=_cut_off(leftover))
    if not any(tokens.bears):
        yield Failure(kind="no_token", detail="the stream ended without one generated token")


def _protocol_faults(pieces: Sequence[Piece], tokens: Borne) -> Iterator[str]:
    for piece in pieces:
        total = piece.completion_tokens
        if piece.fault is not None:
            yield piece.fault
        elif total is not None and total < 0:
            yield f"usage counts {total} completion tokens"
    # Whoever takes over in mid-stream counts from the beginning; that is no broken protocol.
    if tokens.fall is not None and not doubt.is_spliced(pieces):
        yield tokens.fall


def _cut_off(leftover: bytes) -> str:
    detail = "the stream ended without a finish reason and without [DONE]"
    if not leftover:
        return detail
    return f"{detail}, in the middle of an event: {leftover[:200]!r}"


def _endings(
    pieces: Sequence[Piece], *, leftover: bytes, broken: Failure | None
) -> tuple[str, ...]:
    """Doubts about how the stream of bytes ended, when what it carried was complete."""
    found = []
    if leftover and broken is None:
        found.append(f"{doubt.TRUNCATED}: the last event has no end: {leftover[:200]!r}")
    if broken is not None and _is_done(pieces):
        found.append(f"{doubt.OPEN_END}: after [DONE], {broken.kind}: {broken.detail}")
    return tuple(found)


def _digest(pieces: Sequence[Piece]) -> str | None:
    """SHA-256 of each choice's text by channel, whatever way it was cut into deltas."""
    texts: dict[int, list[str]] = {}
    for part in (part for piece in pieces for part in piece.parts if part.text):
        content, reasoning, tool = texts.get(part.index, ["", "", ""])
        texts[part.index] = [content + part.content, reasoning + part.reasoning, tool + part.tool]
    if not texts:
        return None
    return hashlib.sha256(msgspec.json.encode(sorted(texts.items()))).hexdigest()


def _repetition(pieces: Sequence[Piece]) -> float | None:
    """By the token ids of the only choice; ``None`` where some of its text came without any."""
    parts = [part for piece in pieces for part in piece.parts]
    has_gaps = any(part.text and part.token_ids is None for part in parts)
    if has_gaps or len({part.index for part in parts}) != 1:
        return None
    return repetition([each for part in parts for each in part.ids])
