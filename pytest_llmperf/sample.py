"""From recorded requests to numbers: one value a turn under a denominator, or why there is none.

What a denominator is stands in ``denominator``; whether the turns measured what they declare is in
``proof``. A number that cannot be formed is ``None`` with a reason, never zero and never infinite.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from statistics import median

import msgspec

from pytest_llmperf.denominator import Arrival, Clock, Denominator, Unit
from pytest_llmperf.load.in_flight import windows_of
from pytest_llmperf.record import Request

MIN_DECODE_CHUNKS = 8
"""Token-bearing chunks after the first without which a stream's decode time is not known."""

_ENDS: dict[Clock, str] = {
    "wall": "last_token_ns",
    "first_token": "first_token_ns",
    "decode": "last_token_ns",
    "span": "last_token_ns",
}
_STAMPS = {
    "due_ns": "when it was due",
    "sent_ns": "when it was sent",
    "first_token_ns": "when its first token came",
    "last_token_ns": "when its last token came",
}


def value(request: Request, denominator: Denominator, drafts: int | None = 0) -> float | None:
    """One request's number: seconds, or tokens per second.

    Formula: ``denominator.formula``, with ``N`` the output tokens by the server's usage and ``k``
    the tokens in the first token-bearing chunk. Under the span clock a request by itself is what
    it is under the wall clock; the number of all together is ``window_value``.

    :param drafts: tokens that the engine drafts a step, ``None`` or 0 without a drafter; the first
        chunk may hold one more.
    """
    if reason_undefined(request, denominator, drafts) is not None:
        return None
    duration_s = (_interval_ns(request, denominator) or 0) / 1e9
    if denominator.unit == "request":
        return duration_s
    return _tokens(request, denominator.clock) / duration_s


def reason_undefined(
    request: Request, denominator: Denominator, drafts: int | None = 0
) -> str | None:
    """Why the request has no number under this denominator; ``None`` if it has one."""
    if request.failure is not None:
        return f"the request failed ({request.failure.kind})"
    checks: tuple[Callable[[], str | None], ...] = (
        lambda: _interval_undefined(request, denominator),
        lambda: _count_undefined(request) if denominator.unit == "output_token" else None,
        lambda: _decode_undefined(request, drafts or 0) if denominator.clock == "decode" else None,
        lambda: _no_tokens_left(request, denominator),
    )
    return next((reason for check in checks if (reason := check()) is not None), None)


def window_value(requests: Sequence[Request], denominator: Denominator) -> float | None:
    """The number of one window of load under the span clock: all its requests together.

    Formula: ``denominator.formula``; seconds where its unit is the request. ``None`` where a
    request did not complete or lacks a stamp or its tokens, for a sum without it is too small.
    """
    if not requests or any(_reason_uncounted(each, denominator) for each in requests):
        return None
    first = min(getattr(each.stamps, denominator.start) for each in requests)
    duration_s = (max(each.stamps.last_token_ns or 0 for each in requests) - first) / 1e9
    if denominator.unit == "request":
        return float(duration_s)
    return float(sum(each.usage.completion_tokens or 0 for each in requests) / duration_s)


def window_values(requests: Iterable[Request], denominator: Denominator) -> tuple[float, ...]:
    """Each window's number under the span clock, in the order of windows."""
    found = (window_value(each, denominator) for each in windows_of(requests).values())
    return tuple(value for value in found if value is not None)


def _reason_uncounted(request: Request, denominator: Denominator) -> str | None:
    if request.failure is not None:
        return f"the request failed ({request.failure.kind})"
    reason = _interval_undefined(request, denominator)
    return reason or (_count_undefined(request) if denominator.unit == "output_token" else None)


def _ends(denominator: Denominator) -> tuple[str, str]:
    """The names of the stamps between which a denominator's clock runs."""
    first = "first_token_ns" if denominator.clock == "decode" else denominator.start
    return first, _ENDS[denominator.clock]


def _interval_ns(request: Request, denominator: Denominator) -> int | None:
    first, last = (getattr(request.stamps, name) for name in _ends(denominator))
    return None if first is None or last is None else int(last - first)


def _interval_undefined(request: Request, denominator: Denominator) -> str | None:
    missing = [name for name in _ends(denominator) if getattr(request.stamps, name) is None]
    if missing:
        return f"it is not recorded {_STAMPS[missing[0]]}"
    duration_ns = _interval_ns(request, denominator) or 0
    return None if duration_ns > 0 else f"its interval is {duration_ns} ns long"


def _count_undefined(request: Request) -> str | None:
    tokens = request.usage.completion_tokens
    if tokens is None:
        return "the server's usage gives no count of output tokens"
    return None if tokens > 0 else f"the server's usage says {tokens} output tokens"


def _decode_undefined(request: Request, drafts: int) -> str | None:
    """Decode needs a stream that was seen to run: first chunk small and known, enough after it."""
    if request.usage.completion_tokens == 1:
        return "an answer of one token has no decode phase"
    after_first = len(request.chunks) - 1
    if after_first < MIN_DECODE_CHUNKS:
        return (
            f"{max(after_first, 0)} token-bearing chunks after the first are too few "
            f"(at least {MIN_DECODE_CHUNKS})"
        )
    first = request.chunks[0].tokens
    if first is None:
        return "it is not known how many tokens the first chunk holds"
    if first > drafts + 1:
        return f"the first chunk holds {first} tokens, more than one step gives ({drafts + 1})"
    return None


def _no_tokens_left(request: Request, denominator: Denominator) -> str | None:
    if denominator.unit != "output_token" or _tokens(request, denominator.clock) > 0:
        return None
    return "no token came after the first chunk"


def _tokens(request: Request, clock: Clock) -> int:
    """``N``, or ``N - k`` under the decode clock; both are known to be there."""
    total = request.usage.completion_tokens or 0
    return total - (request.chunks[0].tokens or 0) if clock == "decode" else total


class Counted(msgspec.Struct, frozen=True, kw_only=True):
    """The same turns counted one way: a row of the table of denominators."""

    label: str
    formula: str
    unit: str
    clock: Clock | None = None
    """``None`` where it is no clock of a denominator."""
    median: float | None
    """Over turns; ``None`` where no turn can be counted this way, and ``why`` says so."""
    n: int
    """Turns that can be counted this way."""
    undefined: int = 0
    """Turns that cannot."""
    why: str | None = None
    """The commonest reason of those that cannot."""


def every_denominator(
    requests: Iterable[Request], drafts: int | None = 0, arrival: Arrival = "closed"
) -> tuple[Counted, ...]:
    """One run under every denominator that it can be counted by, the caller's view first.

    :param arrival: how the requests came; by a schedule, waiting counts from when they were due.
    """
    turns = list(requests)
    clocks = (
        ("wall clock", _counted_by("wall", "request", arrival)),
        ("wall-clock throughput", _counted_by("wall", "output_token", arrival)),
        ("time to first token", _counted_by("first_token", "request", arrival)),
        ("decode throughput", _counted_by("decode", "output_token", arrival)),
    )
    rows = [
        _row(
            label,
            (each.formula, each.unit_text, each.clock),
            [(value(turn, each, drafts), reason_undefined(turn, each, drafts)) for turn in turns],
        )
        for label, each in clocks
    ]
    gaps = [(inter_chunk_gap_s(turn), _too_few_chunks(turn)) for turn in turns]
    bundles = [(tokens_per_chunk(turn), _no_bundle(turn)) for turn in turns]
    return (
        *rows,
        _row("inter-chunk gap", ("median gap between token-bearing chunks", "s", None), gaps),
        _row("tokens per chunk", ("N / token-bearing chunks", "tok/chunk", None), bundles),
    )


def waits(requests: Iterable[Request]) -> tuple[Counted, ...]:
    """How long the caller waited for each first thing, from sending: they are not one number."""
    turns = list(requests)
    firsts = ("first_byte", "first_event", "first_token", "first_visible", "first_answer")
    return tuple(
        _row(
            f"time to {name.replace('_', ' ')}",
            (f"t_{name} - t_sent", "s", None),
            [(_wait_s(turn, name), f"no {name.replace('_', ' ')} is recorded") for turn in turns],
        )
        for name in firsts
    )


def inter_chunk_gap_s(request: Request) -> float | None:
    """Median time between token-bearing chunks, in seconds; ``None`` with fewer than two."""
    if request.failure is not None or _too_few_chunks(request) is not None:
        return None
    times = sorted(each.at_ns for each in request.chunks)
    return median(later - earlier for earlier, later in pairwise(times)) / 1e9


def tokens_per_chunk(request: Request) -> float | None:
    """Output tokens by usage over token-bearing chunks; ``None`` where either is unknown."""
    if _no_bundle(request) is not None:
        return None
    return (request.usage.completion_tokens or 0) / len(request.chunks)


def _counted_by(clock: Clock, unit: Unit, arrival: Arrival) -> Denominator:
    return Denominator(
        name=f"{clock}_{unit}", clock=clock, unit=unit, prefix="any", arrival=arrival
    )


def _row(
    label: str,
    counted: tuple[str, str, Clock | None],
    found: Sequence[tuple[float | None, str | None]],
) -> Counted:
    values = [number for number, _ in found if number is not None]
    reasons = Counter(reason for number, reason in found if number is None and reason is not None)
    return Counted(
        label=label,
        formula=counted[0],
        unit=counted[1],
        clock=counted[2],
        median=float(median(values)) if values else None,
        n=len(values),
        undefined=len(found) - len(values),
        why=min(reasons, key=lambda each: (-reasons[each], each)) if reasons else None,
    )


def _wait_s(request: Request, name: str) -> float | None:
    sent_ns, at_ns = request.stamps.sent_ns, getattr(request.stamps, f"{name}_ns")
    if request.failure is not None or sent_ns is None or at_ns is None:
        return None
    return float(at_ns - sent_ns) / 1e9


def _too_few_chunks(request: Request) -> str | None:
    if request.failure is not None:
        return f"the request failed ({request.failure.kind})"
    return None if len(request.chunks) > 1 else "fewer than two chunks bear tokens"


def _no_bundle(request: Request) -> str | None:
    if request.failure is not None:
        return f"the request failed ({request.failure.kind})"
    if not request.chunks:
        return "no chunk bears a token"
    return _count_undefined(request)
