"""Whether the load was the declared one, and its numbers add up.

What a single stream must show is in the other rooms; in flight and rates are counted in
``in_flight``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

import msgspec

from pytest_llmperf.load.burst import fate
from pytest_llmperf.load.in_flight import (
    STEADY_SHARE,
    Flight,
    Span,
    flight,
    most_at_once,
    rates,
    steady_span,
    windows_of,
)
from pytest_llmperf.proof.contradiction import Contradiction, Finding
from pytest_llmperf.proof.window import Window, some
from pytest_llmperf.record import Counters, Request
from pytest_llmperf.sample import value, window_value
from pytest_llmperf.units import count, counted, quantity

LATE_SHARE = 0.05
"""Share of a turn's number by which it may be sent late before the client made the number."""

LATE_TURNS = 0.1
"""Share of the turns that may be late so; a pause of the machine is not a bottleneck."""

STALE_NS = 1_000_000_000
"""How old the state may be that a server's page shows."""

SEEN_SHARE = 0.8
"""Of the declared streams that a server must once show open, over several pages."""

SEEN_NEEDS = 10
"""Pages read under the full load without which nothing can be said of what the server saw."""

BURST_SHARE = 0.5
"""Of a burst that the server must once show open, while as many are under way."""

BURST_NEEDS = 5
"""Pages read meanwhile without which nothing can be said of that."""

COUNTED_SHARE = 0.99
"""Of the output tokens that usage states which the server's own counter must show."""


def streams_not_held(window: Window) -> Contradiction | None:
    """As many requests were in flight as a closed loop declares, while it was loaded in full."""
    declared = window.denominator.streams or 0
    if not _is_closed(window):
        return None
    flown = list(_steady(window))
    held = [each for _, each in flown if each is not None]
    short = [each for each in held if each.mean < STEADY_SHARE * declared or each.peak > declared]
    if flown and len(held) == len(flown) and not short:
        return None
    return Contradiction(
        kind="streams",
        reason=f"The load was not the declared one: {counted(declared, 'stream')}, "
        f"{_held_words(held)}.",
        evidence="Counted from the requests themselves, between the last stream's start and the "
        f"last sending, in {counted(len(flown), 'window')}.",
        remedy="Plan more turns for each stream or a shorter ramp; look for a client or a proxy "
        "that holds requests back.",
    )


def _held_words(held: Sequence[Flight]) -> str:
    if not held:
        return "and no window in which all of them had started before the last request was sent"
    least = min(each.mean for each in held)
    most = max(each.peak for each in held)
    return f"{least:.1f} in flight on average where fewest, {most} at most"


def schedule_not_kept(window: Window) -> Contradiction | None:
    """Requests went out when they were due; else the client's lateness is in the number."""
    if window.denominator.arrival not in {"constant", "poisson", "trace"}:
        return None
    late = [late_s for each in window.completed if (late_s := _late_s(each)) is not None]
    if len(late) <= LATE_TURNS * len(window.turns):
        return None
    return Contradiction(
        kind="schedule_not_kept",
        reason=f"The client did not keep the schedule in {some(len(late), len(window.turns))}.",
        evidence=f"They were sent {quantity(median(late), 's')} after they were due (median), "
        "connecting not counted.",
        remedy="Give the client a core of its own, or offer a lower rate.",
    )


def _late_s(turn: Request) -> float | None:
    """By how much a turn was sent too late, where that is a share of its number."""
    due_ns, sent_ns, done_ns = turn.stamps.due_ns, turn.stamps.sent_ns, turn.stamps.last_token_ns
    if due_ns is None or sent_ns is None or done_ns is None:
        return None
    late_s = (sent_ns - due_ns - (turn.connect_ns or 0)) / 1e9
    return late_s if late_s > LATE_SHARE * (done_ns - due_ns) / 1e9 else None


def saturated(window: Window) -> Contradiction | None:
    """The server keeps up with the offered rate; else waiting grows for as long as one measures."""
    found = rates(window.turns, window.denominator)
    if found is None or not found.is_saturated or window.denominator.clock == "span":
        return None
    return Contradiction(
        kind="saturated",
        reason=f"Saturated: {found.offered_rps:.3g} requests a second were offered and "
        f"{found.achieved_rps:.3g} achieved, so that the queue grew while it was measured.",
        evidence="A latency under these arrivals depends on how long they last; what was measured "
        f"is a capacity of {found.achieved_rps:.3g} requests a second.",
        remedy="Offer a lower rate, or gate the capacity with aggregate_throughput.",
    )


def capacity(window: Window) -> Finding | None:
    """A throughput under a saturated server is its capacity."""
    found = rates(window.turns, window.denominator)
    if found is None or not found.is_saturated or window.denominator.clock != "span":
        return None
    return Finding(
        kind="saturated",
        text=f"Saturated: of {found.offered_rps:.3g} offered requests a second "
        f"{found.achieved_rps:.3g} were achieved; the throughput is the capacity, and latencies "
        "of this load depend on how long it lasts.",
    )


def server_saw_more(window: Window) -> Contradiction | None:
    """No page showed more requests at the server than we had there."""
    if not window.denominator.is_load:
        return None
    for page, open_ in _seen(window.measured.during):
        ours = _ours_at(window, page)
        if open_ > ours:
            return Contradiction(
                kind="foreign_traffic",
                reason="Foreign traffic while the load ran.",
                evidence=f"The server showed {open_:.0f} requests running or waiting when "
                f"{counted(ours, 'request')} of ours could be there.",
                remedy="Stop whatever else uses this server, or measure a server of your own.",
            )
    return None


def _ours_at(window: Window, page: Counters) -> int:
    asked_ns = page.at_ns if page.asked_ns is None else page.asked_ns
    here = [
        each for each in window.everything if window.boot_of(each) == window.measured.arm.boot_id
    ]
    return most_at_once(here, (asked_ns - STALE_NS, page.at_ns))


def server_saw_fewer(window: Window) -> Contradiction | None:
    """The server once had the declared streams open; else something held them back on the way."""
    declared = window.denominator.streams or 0
    if not _is_closed(window):
        return None
    spans = [flown.span for _, flown in _steady(window) if flown is not None]
    seen = [
        open_
        for page, open_ in _seen(window.measured.during)
        if any(_is_within(page, span) for span in spans)
    ]
    if len(seen) < SEEN_NEEDS or max(seen) >= SEEN_SHARE * declared:
        return None
    return Contradiction(
        kind="held_back",
        reason=f"The server never had the declared {counted(declared, 'stream')} open.",
        evidence=f"On {len(seen)} of its pages under the full load it showed at most "
        f"{max(seen):.0f} requests running or waiting.",
        remedy="Look for a proxy or a limit of connections between client and engine.",
    )


def burst_held_back(window: Window) -> Contradiction | None:
    """The server once had half of a burst open; else something let it in bit by bit."""
    found = _burst_seen(window)
    if found is None or found.pages < BURST_NEEDS or found.most >= BURST_SHARE * found.sent:
        return None
    return Contradiction(
        kind="held_back",
        reason=f"The server never had half of the {counted(found.sent, 'request')} open at once.",
        evidence=f"On {found.pages} of its pages, while half of them or more were under way by our "
        f"stamps, it showed at most {found.most:.0f} running or waiting.",
        remedy="Look for a proxy, a limit of connections or a slow front end before the engine.",
    )


def burst_unseen(window: Window) -> Finding | None:
    """Too few pages were read to tell what the server had open of a burst."""
    found = _burst_seen(window)
    if found is None or found.most >= BURST_SHARE * found.sent or found.pages >= BURST_NEEDS:
        return None
    return Finding(
        kind="burst_unseen",
        text=f"That all {counted(found.sent, 'request')} were open at the server at once is not "
        f"shown: {counted(found.pages, 'page')} of it came while half of them were under way, with "
        f"at most {found.most:.0f} running or waiting.",
    )


class _BurstSeen(msgspec.Struct, frozen=True, kw_only=True):
    sent: int
    pages: int
    """Read while half of the burst or more was surely under way."""
    most: float
    """Requests that the fullest page of the burst showed."""


def _burst_seen(window: Window) -> _BurstSeen | None:
    """What the server's pages show of a burst of several; ``None`` of anything else.

    Whoever was turned away was not to be seen there.
    """
    sent = [
        each
        for each in window.turns
        if each.stamps.sent_ns is not None and fate(each) not in {"refused", "not connected"}
    ]
    if window.denominator.arrival != "burst" or len(sent) <= 1:
        return None
    pages = list(_seen(window.measured.during))
    full = sum(_surely_under_way(sent, page) >= BURST_SHARE * len(sent) for page, _ in pages)
    return _BurstSeen(
        sent=len(sent), pages=full, most=max((open_ for _, open_ in pages), default=0)
    )


def _surely_under_way(sent: Sequence[Request], page: Counters) -> int:
    """Requests sent before the page was asked for and still open when it had come."""
    asked_ns = page.at_ns if page.asked_ns is None else page.asked_ns
    return sum(
        (each.stamps.sent_ns or 0) <= asked_ns
        and (each.stamps.closed_ns or each.stamps.last_token_ns or 0) >= page.at_ns
        for each in sent
    )


def total_below_stream(window: Window) -> Contradiction | None:
    """All streams together are not slower than one of them: else one was taken for the other."""
    if not _is_closed(window) or window.denominator.clock != "span":
        return None
    alone = msgspec.structs.replace(window.denominator, clock="wall")
    for turns in windows_of(window.turns).values():
        total = window_value(turns, window.denominator)
        rates_of = [rate for each in turns if (rate := value(each, alone)) is not None]
        if total is not None and rates_of and total < STEADY_SHARE * median(rates_of):
            return Contradiction(
                kind="inconsistent",
                reason="The total is below what each stream had by itself.",
                evidence=f"All streams: {quantity(total, 'tok/s')}; the median request: "
                f"{quantity(median(rates_of), 'tok/s')}.",
                remedy="Look at the stamps in the evidence: are clocks mixed, or turns missing?",
            )
    return None


def counted_short(window: Window) -> Contradiction | None:
    """The server's own counter shows the tokens that are summed up."""
    served, ours = window.delta.generation_tokens, window.output_tokens
    if window.denominator.clock != "span" or served is None or not ours:
        return None
    if served >= COUNTED_SHARE * ours or window.misses_requests is not None:
        return None
    return Contradiction(
        kind="inconsistent",
        reason="The server's counter does not show the tokens that were summed up.",
        evidence=f"By usage {count(ours)} output tokens, by the counter {served:,.0f}.",
        remedy="Read the metrics page of the engine itself, and its usage without a proxy.",
    )


def preempted(window: Window) -> Finding | None:
    """Requests that the engine set aside under load for want of memory."""
    preemptions = window.delta.preemptions
    if not window.denominator.is_load or not preemptions:
        return None
    return Finding(
        kind="preempted",
        text=f"The engine set requests aside {preemptions:,.0f} times for want of KV cache: what "
        "was computed for them is computed again, and it is in the numbers.",
    )


def _is_closed(window: Window) -> bool:
    """Whether several streams of a closed loop are declared."""
    of = window.denominator
    return of.arrival == "closed" and (of.streams or 1) > 1


def _steady(window: Window) -> Iterator[tuple[int, Flight | None]]:
    """Each window of load with what was in flight while it was loaded in full."""
    load = [each for each in window.measured.requests if each.role in {"ramp", "turn"}]
    for block, requests in windows_of(load).items():
        span = steady_span(requests)
        yield block, None if span is None else flight(requests, span)


def _seen(pages: Sequence[Counters]) -> Iterator[tuple[Counters, float]]:
    """Pages that say how many requests run or wait."""
    for each in pages:
        running, waiting = each.requests_running, each.requests_waiting
        if each.readable and running is not None:
            yield each, running + (waiting or 0)


def _is_within(page: Counters, span: Span) -> bool:
    asked_ns = page.at_ns if page.asked_ns is None else page.asked_ns
    return span[0] <= asked_ns and page.at_ns <= span[1]
