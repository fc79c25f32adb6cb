"""What is odd about a stream that nevertheless ended: each doubt is one sentence with a fixed head.

Faults that fail the request are in ``stream``; whether a doubt spoils a measurement: ``proof``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

from pytest_llmperf.record import Usage
from pytest_llmperf.stream.delta import Part, Piece
from pytest_llmperf.stream.tokens import Borne

SPLICED = "spliced"
WHOLE_TEXT = "whole text"
TEXT_INCOMPLETE = "text incomplete"
UNKNOWN_FIELD = "unknown field"
AFTER_CACHE = "reported after cache"
TRUNCATED = "truncated"
OPEN_END = "open end"
LEFT = "left"
"""The heads by which another room may look for a doubt, with ``startswith``."""

_END_TOKENS, _REASONING_MARKERS, _CALL_MARKERS = 1, 4, 6
"""Tokens that rightly have no text: the end of a choice, the marks around reasoning and a call."""


def doubts(
    pieces: Sequence[Piece], count: Borne, usage: Usage, *, has_prompt: bool
) -> tuple[str, ...]:
    """Every doubt about these pieces, in a fixed order."""
    found = [*_spliced(pieces), *_whole_text(pieces), *_incomplete(pieces, count, usage)]
    found += _unknown_fields(pieces, count)
    if usage.prompt_tokens == 0 and has_prompt:
        found.append(f"{AFTER_CACHE}: usage says 0 prompt tokens for a prompt that is not empty")
    return tuple(found)


def is_spliced(pieces: Sequence[Piece]) -> bool:
    """Whether another answerer seems to have taken over in mid-stream."""
    return any(True for _ in _spliced(pieces))


def _parts(pieces: Sequence[Piece]) -> Iterator[Part]:
    for piece in pieces:
        yield from piece.parts


def _spliced(pieces: Sequence[Piece]) -> Iterator[str]:
    """Another answerer took over: its model, its id or a new role shows in mid-stream."""
    named: list[tuple[str, Callable[[Piece], str | None]]] = [
        ("model", lambda piece: piece.model),
        ("id", lambda piece: piece.response_id),
    ]
    for name, of in named:
        seen = list(dict.fromkeys(value for piece in pieces if (value := of(piece))))
        if len(seen) > 1:
            yield f"{SPLICED}: the {name} changed in mid-stream: {' -> '.join(seen[:4])}"
    if _role_returns(pieces):
        yield f"{SPLICED}: a new role chunk came in mid-stream"


def _role_returns(pieces: Sequence[Piece]) -> bool:
    # Some servers name the role on every delta; only one that comes back after output without it
    # begins another answer.
    without_role: set[int] = set()
    for part in _parts(pieces):
        if part.role and part.index in without_role:
            return True
        if part.text and not part.role:
            without_role.add(part.index)
    return False


def _whole_text(pieces: Sequence[Piece]) -> Iterator[str]:
    channels: dict[str, Callable[[Part], str]] = {
        "content": lambda part: part.content,
        "reasoning": lambda part: part.reasoning,
        "tool_call": lambda part: part.tool,
    }
    for channel, of in channels.items():
        texts: dict[int, list[str]] = defaultdict(list)
        for part in _parts(pieces):
            if of(part):
                texts[part.index].append(of(part))
        if any(_repeats_all(each) for each in texts.values()):
            yield f"{WHOLE_TEXT}: {channel} deltas repeat everything before them"


def _repeats_all(deltas: Sequence[str]) -> bool:
    """Whether two deltas in a row begin with all the text before them."""
    so_far, pieces, in_a_row = "", 0, 0
    for delta in deltas:
        # A second delta equal to the first is a repeated word, not a repeated text.
        if so_far and delta.startswith(so_far) and (len(delta) > len(so_far) or pieces > 1):
            so_far, pieces, in_a_row = delta, pieces + 1, in_a_row + 1
        else:
            so_far, pieces, in_a_row = so_far + delta, pieces + 1, 0
        if in_a_row > 1:
            return True
    return False


def _incomplete(pieces: Sequence[Piece], count: Borne, usage: Usage) -> Iterator[str]:
    total = usage.completion_tokens
    if total is None or count.fall is not None:
        return
    tokens = [n for n, bears in zip(count.tokens, count.bears, strict=True) if bears]
    known = [n for n in tokens if n is not None]
    size = sum(_size(piece) for piece in pieces)
    lost = _without_text(pieces, count)
    if tokens and len(known) == len(tokens) and sum(known) < total:
        yield f"{TEXT_INCOMPLETE}: usage counts {total} tokens, the chunks bore {sum(known)}"
    elif total - size > _allowance(pieces):
        yield f"{TEXT_INCOMPLETE}: usage counts {total} tokens, the text has only {size} bytes"
    elif lost > _allowance(pieces):
        yield f"{TEXT_INCOMPLETE}: of {total} tokens by usage, {lost} came without any text"


def _without_text(pieces: Sequence[Piece], count: Borne) -> int:
    """Tokens that no text can hold, at one byte a token: held-back text may still come later."""
    owed = lost = 0
    for piece, tokens in zip(pieces, count.tokens, strict=True):
        owed += tokens or 0
        size = _size(piece)
        if size:
            lost, owed = lost + max(0, owed - size), 0
    return lost + owed


def _size(piece: Piece) -> int:
    """Bytes of text, that in a dialect unknown here included: it is text, and is told apart."""
    texts = [text for part in piece.parts for text in (part.text, *part.unknown.values())]
    return sum(len(text.encode("utf-8", "replace")) for text in texts)


def _allowance(pieces: Sequence[Piece]) -> int:
    parts = list(_parts(pieces))
    choices = len({part.index for part in parts})
    reasoned = any(part.reasoning for part in parts)
    calls = sum(part.calls for part in parts)
    return _END_TOKENS * choices + _REASONING_MARKERS * reasoned + _CALL_MARKERS * calls


def _unknown_fields(pieces: Sequence[Piece], count: Borne) -> Iterator[str]:
    """Name strings that grow while tokens do: text in a dialect that is not known here."""
    values: dict[str, list[str]] = defaultdict(list)
    alone: dict[str, int] = defaultdict(int)
    for piece, tokens in zip(pieces, count.tokens, strict=True):
        for part in piece.parts if tokens != 0 else ():
            for name, value in part.unknown.items():
                values[name].append(value)
                alone[name] += not part.text
    for name, seen in values.items():
        # A constant beside the text is a label; a lone string again and again is text.
        if len(set(seen)) > 1 or alone[name] > 1:
            yield f"{UNKNOWN_FIELD}: {name!r} of the delta grows; its text is not counted as output"
