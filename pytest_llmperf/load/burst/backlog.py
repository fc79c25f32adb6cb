"""The server's queue over time, from its own pages: how deep, how long, and how many it saw open.

Reading the pages is in ``measure``, their meaning in ``counters``.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import msgspec

from pytest_llmperf.record import Counters
from pytest_llmperf.units import count, counted, quantity


class Depth(msgspec.Struct, frozen=True, kw_only=True):
    """One reading: seconds since the burst was due, and how many the server ran and held back."""

    at_s: float
    running: int
    waiting: int

    @property
    def open(self) -> int:
        """Requests that the server had in hand."""
        return self.running + self.waiting


class Backlog(msgspec.Struct, frozen=True, kw_only=True):
    """The readings of one burst, in time."""

    depths: tuple[Depth, ...] = ()
    unread: int = 0
    """Pages that did not come, or did not say how many ran and waited."""

    @property
    def most_waiting(self) -> Depth | None:
        """The first reading of the longest queue; ``None`` without a reading."""
        return max(self.depths, key=lambda each: each.waiting, default=None)

    @property
    def most_open(self) -> Depth | None:
        """The first reading with the most requests open."""
        return max(self.depths, key=lambda each: each.open, default=None)

    @property
    def queue_empty_s(self) -> float | None:
        """From due to the first reading after which nothing waited any more, if that came."""
        return _until_zero([(each.at_s, each.waiting) for each in self.depths])

    @property
    def drained_s(self) -> float | None:
        """From due to the first reading after which nothing was open any more, if that came."""
        return _until_zero([(each.at_s, each.open) for each in self.depths])

    @property
    def longest_gap_s(self) -> float | None:
        """The longest time between two readings: what happened inside it was not seen."""
        times = [each.at_s for each in self.depths]
        return max((later - earlier for earlier, later in pairwise(times)), default=None)

    @property
    def words(self) -> str:
        """Peak and time to drain as one line for a person."""
        waiting, most = self.most_waiting, self.most_open
        if waiting is None or most is None:
            return "the server's queue was not measured"
        gap = self.longest_gap_s
        apart = "" if gap is None else f", at most {quantity(gap, 's')} apart"
        readings = f"{counted(len(self.depths), 'reading')}{apart}"
        return f"at most {count(most.open)} open at the server, {self._queue(waiting)} ({readings})"

    def _queue(self, longest: Depth) -> str:
        if not longest.waiting:
            return "none seen waiting"
        peak = f"{count(longest.waiting)} waiting after {quantity(longest.at_s, 's')}"
        empty = self.queue_empty_s
        if empty is None:
            return f"{peak}, queue never seen empty again"
        return f"{peak}, queue empty after {quantity(empty, 's')}"


def backlog(pages: Sequence[Counters], *, since_ns: int) -> Backlog:
    """Read the queue off the server's pages; a page that does not tell it is counted, not guessed.

    :param since_ns: when the burst was due.
    """
    depths = [
        Depth(
            at_s=(page.at_ns - since_ns) / 1e9,
            running=round(page.requests_running),
            waiting=round(page.requests_waiting),
        )
        for page in sorted(pages, key=lambda each: each.at_ns)
        if page.requests_running is not None and page.requests_waiting is not None
    ]
    return Backlog(depths=tuple(depths), unread=len(pages) - len(depths))


def _until_zero(seen: Sequence[tuple[float, int]]) -> float | None:
    """When the last run of zeros began, after anything else was seen; ``None`` where none did."""
    busy = [place for place, (_, number) in enumerate(seen) if number]
    if not busy or busy[-1] + 1 == len(seen):
        return None
    return seen[busy[-1] + 1][0]
