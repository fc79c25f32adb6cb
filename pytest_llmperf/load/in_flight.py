"""How many requests were in flight, and at what rate they came and went: counted from records.

Numbers of single turns are in ``sample``; whether a load was the declared one is in ``proof``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from pytest_llmperf.denominator import Denominator
from pytest_llmperf.record import Request

Span = tuple[int, int]
"""From and until, in nanoseconds."""

STEADY_SHARE = 0.95
"""Of the declared streams that must be in flight on average, and of the offered rate that must be
achieved."""


class Flight(msgspec.Struct, frozen=True, kw_only=True):
    """Requests in flight over an interval."""

    mean: float
    """Weighted by time: the sum of the time that requests were in flight, over the interval."""
    peak: int
    span: Span


def span_of(request: Request) -> Span | None:
    """From sending to the end of the answer; ``None`` where it was never sent or never ended."""
    sent_ns, closed_ns = request.stamps.sent_ns, request.stamps.closed_ns
    return None if sent_ns is None or closed_ns is None else (sent_ns, closed_ns)


def flight(requests: Iterable[Request], over: Span | None = None) -> Flight | None:
    """Requests in flight over an interval, or from the first sent to the last closed.

    Formula: ``mean = sum of each request's time inside / (until - from)``.
    ``None`` where nothing was sent or the interval is empty.
    """
    spans = [span for each in requests if (span := span_of(each)) is not None]
    if not spans:
        return None
    first, last = over or (min(a for a, _ in spans), max(b for _, b in spans))
    if last <= first:
        return None
    inside = [(max(a, first), min(b, last)) for a, b in spans if a < last and b > first]
    time_ns = sum(until - since for since, until in inside)
    return Flight(mean=time_ns / (last - first), peak=_peak(inside), span=(first, last))


def most_at_once(requests: Iterable[Request], over: Span) -> int:
    """The most requests that were in flight at one moment of an interval, its ends included."""
    spans = [span for each in requests if (span := span_of(each)) is not None]
    inside = [(max(a, over[0]), min(b, over[1])) for a, b in spans if a <= over[1] and b >= over[0]]
    return _peak([(since, max(until, since + 1)) for since, until in inside])


def _peak(spans: Sequence[Span]) -> int:
    """The most spans that overlap at one moment; one that ends as another begins does not."""
    moments = sorted([(since, 1) for since, _ in spans] + [(until, -1) for _, until in spans])
    most = now = 0
    for _, change in moments:
        now += change
        most = max(most, now)
    return most


def windows_of(requests: Iterable[Request]) -> dict[int, list[Request]]:
    """Requests by their window of load, in the order of windows."""
    found: dict[int, list[Request]] = {}
    for each in requests:
        if each.block is not None:
            found.setdefault(each.block, []).append(each)
    return dict(sorted(found.items()))


def steady_span(requests: Sequence[Request]) -> Span | None:
    """When a closed loop was loaded in full: from its last stream's start to the last sending.

    :param requests: of one window, the first wave included.
    """
    sent: dict[int | None, int] = {}
    moments = []
    for each in requests:
        if each.stamps.sent_ns is not None:
            moments.append(each.stamps.sent_ns)
            first = sent.get(each.stream, each.stamps.sent_ns)
            sent[each.stream] = min(first, each.stamps.sent_ns)
    if not moments or max(moments) <= max(sent.values()):
        return None
    return max(sent.values()), max(moments)


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """Requests per second, offered and achieved, over all windows of a load."""

    declared_rps: float
    offered_rps: float
    """As the drawn schedule came out: a Poisson schedule has its mean rate only on average."""
    achieved_rps: float

    @property
    def is_saturated(self) -> bool:
        """Whether the server answered more slowly than requests came."""
        return self.achieved_rps < STEADY_SHARE * self.offered_rps


def rates(turns: Iterable[Request], denominator: Denominator) -> Rates | None:
    """What was offered and what was achieved; ``None`` in a closed loop or a burst.

    Formula: over windows of n turns, ``offered = sum(n - 1) / sum(last t_due - first t_due)`` and
    ``achieved = offered / slope``, with the least-squares slope of ``t_last_token`` on ``t_due``
    within windows: where the server keeps up, answers come in the rhythm of the requests and the
    slope is 1; where it doesn't, they come in its own.
    """
    if denominator.rate_rps is None:
        return None
    gaps = came_ns = 0
    spread = together = 0.0
    for window in windows_of(turns).values():
        pairs = [
            (each.stamps.due_ns, each.stamps.last_token_ns)
            for each in window
            if each.stamps.due_ns is not None and each.stamps.last_token_ns is not None
        ]
        due, done = _centred([at for at, _ in pairs]), _centred([at for _, at in pairs])
        if pairs:
            gaps += len(pairs) - 1
            came_ns += max(at for at, _ in pairs) - min(at for at, _ in pairs)
            spread += sum(at * at for at in due)
            together += sum(at * to for at, to in zip(due, done, strict=True))
    if not came_ns or together <= 0:
        return None
    offered = 1e9 * gaps / came_ns
    return Rates(
        declared_rps=denominator.rate_rps,
        offered_rps=offered,
        achieved_rps=offered * spread / together,
    )


def _centred(moments: Sequence[int]) -> list[float]:
    """Moments in seconds about their mean."""
    if not moments:
        return []
    first = moments[0]
    seconds = [(at - first) / 1e9 for at in moments]
    mean = sum(seconds) / len(seconds)
    return [each - mean for each in seconds]


def mean_flight(requests: Iterable[Request]) -> Flight | None:
    """In flight over all windows of a load: the mean of their means, the greatest of their peaks.

    :param requests: the first waves included; warm-up and primes left out.
    """
    load = (each for each in requests if each.role in {"ramp", "turn"})
    flown = [found for each in windows_of(load).values() if (found := flight(each)) is not None]
    if not flown:
        return None
    return Flight(
        mean=sum(each.mean for each in flown) / len(flown),
        peak=max(each.peak for each in flown),
        span=(flown[0].span[0], flown[-1].span[1]),
    )
