"""The same work at more and more streams: throughput of all, what each stream gets, the knee.

Measuring a rung is in ``session``; its picture is in ``picture``, its verdicts in ``claims``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

import msgspec

from pytest_llmperf.record import Request

DIP = 0.10
"""A rung that is slower than a greater one by this share is measured again: less is noise."""


class Rung(msgspec.Struct, frozen=True, kw_only=True):
    """One number of streams, with what all of them got and what each of them got."""

    streams: int
    turns: int
    aggregate_tps: float
    """Output tokens of all turns over the time from the first sent to the last token; the median
    of several windows."""
    per_stream_tps: float
    """Median over turns of output tokens over the turn's wall clock: what one caller sees."""
    first_token_s: float
    """Median wait before anything appears."""
    wall_s: float
    """Median wall clock of a turn."""
    in_flight: float
    """Mean requests in flight over the window; less than ``streams`` as the last ones run out."""

    @property
    def power(self) -> float:
        """Throughput over latency (Kleinrock 1979): greatest at the knee.

        Formula: aggregate tokens per second / median wall clock of a turn.
        """
        return self.aggregate_tps / self.wall_s


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """A rung of the ladder as it counts, and its first try where that looked wrong."""

    rung: Rung
    first_try: Rung | None = None
    """What was measured first and was slower than a greater rung; it was measured once more."""

    @property
    def healed(self) -> bool:
        """Whether the second measurement was faster by more than noise."""
        return self.first_try is not None and (
            self.rung.aggregate_tps > self.first_try.aggregate_tps * (1 + DIP)
        )


def rung(turns: Sequence[Request], *, streams: int) -> Rung | None:
    """One rung from its turns; ``None`` where a turn failed, or lacks a stamp or its tokens."""
    found = [_times(each) for each in turns]
    whole = [each for each in found if each is not None]
    if not whole or len(whole) < len(found):
        return None
    windows: dict[int, list[_Times]] = {}
    for each in whole:
        windows.setdefault(each.window, []).append(each)
    spans_s = [_span_s(window) for window in windows.values()]
    rates = [
        sum(each.tokens for each in window) / span_s
        for window, span_s in zip(windows.values(), spans_s, strict=True)
    ]
    return Rung(
        streams=streams,
        turns=len(whole),
        aggregate_tps=median(rates),
        per_stream_tps=median(each.tokens / each.wall_s for each in whole),
        first_token_s=median(each.first_token_s for each in whole),
        wall_s=median(each.wall_s for each in whole),
        in_flight=math.fsum(each.wall_s for each in whole) / math.fsum(spans_s),
    )


def knee(rungs: Sequence[Rung]) -> Rung | None:
    """The rung of the greatest power, where adding streams begins to cost more than it brings.

    Source: L. Kleinrock, "Power and Deterministic Rules of Thumb for Probabilistic Problems in
    Computer Communications", ICC 1979. ``None`` where the greatest power is at the last rung: the
    knee is beyond the ladder.
    """
    if not rungs:
        return None
    best = max(rungs, key=lambda each: each.power)
    return None if best is max(rungs, key=lambda each: each.streams) else best


def dips(rungs: Sequence[Rung]) -> tuple[int, ...]:
    """Streams of the rungs that are slower than they can be, given their neighbours.

    A stream at a rung gets less than a stream at the next greater rung does, or all streams
    together get less than at the rungs on both sides; both by more than ``DIP``.
    """
    ordered = sorted(rungs, key=lambda each: each.streams)
    found = []
    for place, each in enumerate(ordered[:-1]):
        after = ordered[place + 1]
        before = ordered[place - 1] if place else None
        if each.per_stream_tps * (1 + DIP) < after.per_stream_tps or (
            before is not None
            and each.aggregate_tps * (1 + DIP) < before.aggregate_tps
            and each.aggregate_tps * (1 + DIP) < after.aggregate_tps
        ):
            found.append(each.streams)
    return tuple(found)


class _Times(msgspec.Struct, frozen=True, kw_only=True):
    """The stamps of one turn that a rung is made of, all known."""

    window: int
    sent_ns: int
    last_ns: int
    first_token_s: float
    wall_s: float
    tokens: int


def _times(turn: Request) -> _Times | None:
    stamps, tokens = turn.stamps, turn.usage.completion_tokens
    sent_ns, first_ns, last_ns = stamps.sent_ns, stamps.first_token_ns, stamps.last_token_ns
    if not turn.completed or not tokens or None in (sent_ns, first_ns, last_ns):
        return None
    assert sent_ns is not None and first_ns is not None and last_ns is not None  # noqa: S101, PT018 - just seen
    if last_ns <= sent_ns:
        return None
    return _Times(
        window=turn.block or 0,
        sent_ns=sent_ns,
        last_ns=last_ns,
        first_token_s=(first_ns - sent_ns) / 1e9,
        wall_s=(last_ns - sent_ns) / 1e9,
        tokens=tokens,
    )


def _span_s(window: Sequence[_Times]) -> float:
    last_ns = max(each.last_ns for each in window)
    return (last_ns - min(each.sent_ns for each in window)) / 1e9
