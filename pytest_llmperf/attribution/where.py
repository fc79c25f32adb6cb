"""Where the caller's time went: queue, prefill and decode by the server, the rest by our stamps.

All numbers are means a request over everything of ours that an engine answered inside the window,
priming included, for that is what its histograms hold; nothing here is a test.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from pytest_llmperf.evidence import Measured
from pytest_llmperf.proof.window import Window
from pytest_llmperf.record import Request, Spent
from pytest_llmperf.units import counted, percent, seconds

ADDS_UP = 0.10
"""The share of the wall clock up to which what no part explains is just told, not complained of."""

_NAMES = {
    "queue": "vllm:request_queue_time_seconds",
    "prefill": "vllm:request_prefill_time_seconds",
    "decode": "vllm:request_decode_time_seconds",
    "whole": "vllm:e2e_request_latency_seconds",
}


class Where(msgspec.Struct, frozen=True, kw_only=True):
    """Mean seconds a request. ``None``: the server does not say; ``lacking`` tells why."""

    requests: int = 0
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
        primes = f", {counted(self.primes, 'priming one')} included" if self.primes else ""
        return f"mean of {counted(self.requests, 'request')}{primes}"


def where(boots: Sequence[Measured]) -> Where:
    """Where the time of one engine's requests went, over its boots."""
    windows = [Window(each) for each in boots]
    ours = [each for window in windows for each in window.inside if each.completed]
    timed = [wall for each in ours if (wall := _wall_s(each)) is not None]
    grown = {name: _joined(windows, name) for name in _NAMES}
    lacking = _lacking(windows, grown, len(ours))
    means = {name: None if lacking else _mean_s(each) for name, each in grown.items()}
    return Where(
        requests=len(ours),
        primes=sum(each.role == "prime" for each in ours),
        wall_s=sum(timed) / len(timed) if timed and len(timed) == len(ours) else None,
        queue_s=means["queue"],
        prefill_s=means["prefill"],
        decode_s=means["decode"],
        server_s=means["whole"],
        lacking=lacking or _missing(grown),
    )


def where_lines(arms: Sequence[Sequence[Measured]]) -> tuple[str, ...]:
    """A line for each engine among the arms, named where there are several; each engine once."""
    engines: dict[tuple[str, ...], Sequence[Measured]] = {}
    for boots in arms:
        engines.setdefault(tuple(each.arm.boot_id for each in boots), boots)
    several = len(engines) > 1
    return tuple(
        f"{boots[-1].arm.engine}: {where(boots).text}" if several else where(boots).text
        for boots in engines.values()
    )


def _joined(windows: Sequence[Window], name: str) -> Spent | None:
    """One span's growth over all boots; ``None`` where one of them lacks it."""
    found = [getattr(window.delta.spans, name) for window in windows]
    if not found or any(each is None for each in found):
        return None
    return Spent(sum_s=sum(each.sum_s for each in found), count=sum(each.count for each in found))


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
