"""Where the caller's time went: queue, prefill and decode by the server, the rest by our stamps.

All numbers are means a request. Where the server's histograms were read around each request, they
are the arm's own turns'; else they are of everything of ours that the engine answered inside the
window, priming included, for that is what its histograms hold. Nothing here is a test.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from pytest_llmperf.counters import difference
from pytest_llmperf.evidence import Measured
from pytest_llmperf.proof.window import Window
from pytest_llmperf.record import Request, Spans, Spent
from pytest_llmperf.units import counted, percent, seconds

ADDS_UP = 0.10
"""The share of the wall clock up to which what no part explains is just told, not complained of."""

_NAMES = {
    "queue": "vllm:request_queue_time_seconds",
    "prefill": "vllm:request_prefill_time_seconds",
    "decode": "vllm:request_decode_time_seconds",
    "whole": "vllm:e2e_request_latency_seconds",
}

_PREFIXES = {"warm": "cached", "cold": "cold", "any": "any prefix"}


class Where(msgspec.Struct, frozen=True, kw_only=True):
    """Mean seconds a request. ``None``: the server does not say; ``lacking`` tells why."""

    requests: int = 0
    is_own: bool = False
    """Whether these are the arm's turns and nothing else."""
    primes: int = 0
    """How many of the requests only filled the cache."""
    wall_s: float | None = None
    """By our stamps. Formula: ``t_last_token - t_sent``."""
    queue_s: float | None = None
    prefill_s: float | None = None
    decode_s: float | None = None
    server_s: float | None = None
    """The server's own whole, from arrival to the end."""
    lacking: tuple[str, ...] = ()

    @property
    def client_s(self) -> float | None:
        """Client, network and HTTP front end. Formula: ``wall_s - server_s``."""
        if self.wall_s is None or self.server_s is None:
            return None
        return self.wall_s - self.server_s

    @property
    def unexplained_s(self) -> float | None:
        """What none of the known parts holds; negative where they are more than the wall clock."""
        if self.wall_s is None:
            return None
        parts = (self.queue_s, self.prefill_s, self.decode_s, self.client_s)
        return self.wall_s - sum(each for each in parts if each is not None)

    @property
    def text(self) -> str:
        """One line for a report."""
        parts = (
            ("queue", self.queue_s),
            ("prefill", self.prefill_s),
            ("decode", self.decode_s),
            ("client and network", self.client_s),
        )
        told = ", ".join(f"{name} {seconds(each)}" for name, each in parts)
        whole = f"{told} of {seconds(self.wall_s)}"
        return "; ".join((whole, *self._balance(), *self.lacking, self._basis()))

    def _balance(self) -> tuple[str, ...]:
        left = self.unexplained_s
        if left is None or not self.wall_s:
            return ()
        if self.client_s is not None and -self.client_s > ADDS_UP * self.wall_s:
            more = seconds(-self.client_s)
            return (f"they do not add up: the server timed {more} more than the caller waited",)
        share = round(left / self.wall_s, 3) + 0.0  # no negative zero
        if abs(share) <= ADDS_UP:
            return (f"{percent(share)} unexplained",)
        if left < 0:
            return (f"they do not add up: {seconds(-left)} more than the caller waited",)
        return (f"they do not add up: {seconds(left)} ({percent(share)}) is in none of them",)

    def _basis(self) -> str:
        if self.is_own:
            return f"mean of {counted(self.requests, 'turn')}"
        primes = f", {counted(self.primes, 'priming one')} included" if self.primes else ""
        return f"mean of {counted(self.requests, 'request')}{primes}"


def where(boots: Sequence[Measured]) -> Where:
    """Where the time of an arm's turns went, over its boots; else of its engine's requests."""
    windows = [Window(each) for each in boots]
    return _of_the_turns(windows) or _of_the_engine(windows)


def _of_the_turns(windows: Sequence[Window]) -> Where | None:
    """The arm's own turns; ``None`` unless the server's times of each are known to be its own."""
    turns = [each for window in windows for each in window.completed]
    alone = [each for window in windows for each in _each_alone(window)]
    known = [each for each in alone if each is not None]
    if not turns or len(known) < len(turns):
        return None
    grown = {name: _summed([getattr(each, name) for each in known]) for name in _NAMES}
    return _means(turns, grown, is_own=True)


def _each_alone(window: Window) -> Iterator[Spans | None]:
    """What the histograms grew by over each turn; ``None`` where that may not be its own."""
    of = window.measured
    taken = (each for each in (of.before, *of.during, of.after) if each is not None)
    pages = sorted(taken, key=lambda each: each.at_ns)
    read = [each.at_ns for each in pages]
    asked = [each.at_ns if each.asked_ns is None else each.asked_ns for each in pages]
    for turn in () if window.denominator.is_load else window.completed:
        sent_ns, closed_ns = turn.stamps.sent_ns, turn.stamps.closed_ns
        if sent_ns is None or closed_ns is None:
            yield None
            continue
        last, first = bisect_right(read, sent_ns) - 1, bisect_left(asked, closed_ns)
        is_between = last >= 0 and first < len(pages)
        grown = difference(pages[last], pages[first]).spans if is_between else Spans()
        counts = {spent.count for name in _NAMES if (spent := getattr(grown, name)) is not None}
        yield grown if counts == {1} else None


def _of_the_engine(windows: Sequence[Window]) -> Where:
    """Everything of ours that the engine answered inside the windows."""
    ours = [each for window in windows for each in window.inside if each.completed]
    spans = [window.delta.spans for window in windows]
    grown = {name: _summed([getattr(each, name) for each in spans]) for name in _NAMES}
    return _means(ours, grown, lacking=_lacking(windows, grown, len(ours)))


def _means(
    ours: Sequence[Request],
    grown: Mapping[str, Spent | None],
    *,
    is_own: bool = False,
    lacking: tuple[str, ...] = (),
) -> Where:
    walls = [_wall_s(each) for each in ours]
    timed = [each for each in walls if each is not None]
    means = {name: None if lacking else _mean_s(each) for name, each in grown.items()}
    return Where(
        requests=len(ours),
        is_own=is_own,
        primes=sum(each.role == "prime" for each in ours),
        wall_s=sum(timed) / len(timed) if timed and len(timed) == len(walls) else None,
        queue_s=means["queue"],
        prefill_s=means["prefill"],
        decode_s=means["decode"],
        server_s=means["whole"],
        lacking=lacking or _missing(grown),
    )


def where_lines(arms: Sequence[Sequence[Measured]]) -> tuple[str, ...]:
    """A line for each arm, or for each engine where its requests cannot be told apart."""
    lines: dict[str, None] = {}
    engines = {boots[-1].arm.engine for boots in arms}
    prefixes = {boots[-1].arm.denominator.prefix for boots in arms}
    for boots in arms:
        found, arm = where(boots), boots[-1].arm
        names = (arm.engine,) if len(engines) > 1 else ()
        if found.is_own and len(prefixes) > 1:
            names = (*names, _PREFIXES[arm.denominator.prefix])
        named = f"{', '.join(names)}: " if names else ""
        lines.setdefault(named + found.text)
    return tuple(lines)


def _summed(found: Sequence[Spent | None]) -> Spent | None:
    """One span over several growths; ``None`` where one of them lacks it."""
    known = [each for each in found if each is not None]
    if not known or len(known) < len(found):
        return None
    return Spent(sum_s=sum(each.sum_s for each in known), count=sum(each.count for each in known))


def _mean_s(total: Spent | None) -> float | None:
    return None if total is None or not total.count else total.sum_s / total.count


def _lacking(
    windows: Sequence[Window], grown: Mapping[str, Spent | None], ours: int
) -> tuple[str, ...]:
    """Why the server's times are not those of our requests; empty where they are."""
    unread = [window.unreadable_why for window in windows if not window.is_readable]
    if unread:
        return (f"the server's histograms cannot be read ({unread[0]})",)
    others = {each.count for each in grown.values() if each is not None and each.count != ours}
    if others:
        timed = counted(round(max(others)), "request")
        return (f"the server timed {timed} and {ours:,} are ours: its times are not of ours",)
    return ()


def _missing(grown: Mapping[str, Spent | None]) -> tuple[str, ...]:
    absent = [_NAMES[name] for name, each in grown.items() if each is None]
    return (f"the metrics page has no {', '.join(absent)}",) if absent else ()


def _wall_s(request: Request) -> float | None:
    sent_ns, last_ns = request.stamps.sent_ns, request.stamps.last_token_ns
    return None if sent_ns is None or last_ns is None else (last_ns - sent_ns) / 1e9
