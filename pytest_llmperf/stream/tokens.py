"""How many generated tokens each piece of a stream bore, from the server's own counts.

Text is never tokenised here and chunks are never counted as tokens; a count that the server does
not give is ``None``. What the stream amounts to besides is in ``stream``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from pytest_llmperf.record import Chunk
from pytest_llmperf.stream.delta import Piece


class Borne(msgspec.Struct, frozen=True, kw_only=True):
    """What each piece bore, in the order of the pieces."""

    bears: tuple[bool, ...]
    """Whether a piece bears generated tokens at all."""
    tokens: tuple[int | None, ...]
    """How many, where the server says so."""
    fall: str | None = None
    """How running usage fell, which a server that counts right never lets happen."""


def borne(pieces: Sequence[Piece]) -> Borne:
    """Count by differences of running usage, else by token ids, else not at all."""
    quiet = tuple(_opening(pieces))
    running = _is_running(pieces)
    steps = _steps(pieces, quiet) if running else [None] * len(pieces)
    fall = _fall(pieces, steps)
    bears = tuple(
        _has_output(piece) or (step or 0) > 0 for piece, step in zip(pieces, steps, strict=True)
    )
    counts = steps if running else [piece.token_ids for piece in pieces]
    tokens = [None] * len(pieces) if fall is not None else counts
    return Borne(bears=bears, tokens=tuple(tokens), fall=fall)


def _opening(pieces: Sequence[Piece]) -> Iterator[bool]:
    """Tell the pieces that only open a choice with its role; they never bear a token."""
    seen: set[int] = set()
    for piece in pieces:
        fresh = {part.index for part in piece.parts} - seen
        seen |= fresh
        yield bool(fresh) and any(part.role for part in piece.parts) and not _has_output(piece)


def _has_output(piece: Piece) -> bool:
    return piece.has_text or bool(piece.token_ids)


def _is_running(pieces: Sequence[Piece]) -> bool:
    """Whether usage is a running total: on every piece with output, and not stuck at zero.

    Usage only on the finishing piece, or on some pieces, cannot be split over the others.
    """
    stated = [piece.completion_tokens for piece in pieces if _has_output(piece)]
    if not stated:
        stated = [p.completion_tokens for p in pieces if p.parts and p.usage is not None]
        if len(stated) < 2:  # noqa: PLR2004 - one total alone says nothing of when it came
            return False
    return all(total is not None for total in stated) and bool(stated[-1])


def _steps(pieces: Sequence[Piece], quiet: Sequence[bool]) -> list[int | None]:
    overall = list(_differences(pieces, quiet, per_choice=False))
    several = len({part.index for piece in pieces for part in piece.parts}) > 1
    if not several or any(len(piece.parts) > 1 for piece in pieces):
        return overall
    # With several choices some servers count each choice for itself, others all together;
    # the reading whose sum is the final usage is the right one.
    apart = list(_differences(pieces, quiet, per_choice=True))
    final = _final(pieces)
    if final is not None and _sum(apart) == final != _sum(overall):
        return apart
    return apart if final is None and min(_known(overall), default=0) < 0 else overall


def _differences(
    pieces: Sequence[Piece], quiet: Sequence[bool], *, per_choice: bool
) -> Iterator[int | None]:
    before: dict[int, int] = {}
    for piece, opening in zip(pieces, quiet, strict=True):
        total = piece.completion_tokens
        if not piece.parts or total is None or opening:
            yield None
            continue
        key = piece.parts[0].index if per_choice else 0
        yield total - before.get(key, 0)
        before[key] = total


def _fall(pieces: Sequence[Piece], steps: Sequence[int | None]) -> str | None:
    reached = 0
    for step in _known(steps):
        if step < 0:
            return f"usage fell from {reached} to {reached + step} completion tokens"
        reached += step
    final = _final(pieces)
    if final is not None and final < reached:
        return f"usage fell from {reached} to {final} completion tokens"
    return None


def _final(pieces: Sequence[Piece]) -> int | None:
    """The last total on a piece without choices, as sent once everything is over."""
    totals = [piece.completion_tokens for piece in pieces if not piece.parts]
    return next((total for total in reversed(totals) if total is not None), None)


def _known(steps: Sequence[int | None]) -> list[int]:
    return [step for step in steps if step is not None]


def _sum(steps: Sequence[int | None]) -> int:
    return sum(_known(steps))


def total_tokens(chunks: Sequence[Chunk]) -> int | None:
    """Tokens over all chunks; ``None`` when any chunk's count is unknown or there is none."""
    counts = [chunk.tokens for chunk in chunks if chunk.tokens is not None]
    return sum(counts) if chunks and len(counts) == len(chunks) else None


def mean_tokens_per_s(chunks: Sequence[Chunk]) -> float | None:
    """Tokens after the first chunk over the time since it.

    Formula: ``(N - k) / (t_last - t_first)``. ``None`` where a count is unknown or no time passed.
    """
    total, moments = total_tokens(chunks), _moments(chunks)
    if total is None or len(moments) < 2:  # noqa: PLR2004 - a rate needs two moments
        return None
    return _rate(moments, 0, len(moments) - 1)


def peak_tokens_per_s(chunks: Sequence[Chunk], *, window_s: float = 1.0) -> float | None:
    """Highest rate over any stretch of at least ``window_s``, or over the whole when shorter.

    The whole is a stretch too, so the peak is never below ``mean_tokens_per_s``; a peak below the
    mean in numbers from elsewhere means that chunks were counted as tokens.
    """
    mean, moments = mean_tokens_per_s(chunks), _moments(chunks)
    if mean is None:
        return None
    best, end = mean, 0
    for start, (begin_ns, _) in enumerate(moments):
        while end < len(moments) and moments[end][0] - begin_ns < window_s * 1e9:
            end += 1
        if end == len(moments):
            break
        if end > start:
            best = max(best, _rate(moments, start, end))
    return best


def _moments(chunks: Sequence[Chunk]) -> list[tuple[int, int]]:
    """Stamps with the tokens that came up to and with them; chunks of one read are one moment."""
    moments: dict[int, int] = {}
    running = 0
    for chunk in chunks:
        running += chunk.tokens or 0
        moments[chunk.at_ns] = running
    return list(moments.items())


def _rate(moments: Sequence[tuple[int, int]], start: int, end: int) -> float:
    (begin_ns, before), (end_ns, after) = moments[start], moments[end]
    return (after - before) / ((end_ns - begin_ns) / 1e9)
