"""How long the requests of a burst waited, counted from when they were due; nobody flatters it.

A request that never got its whole answer waited longer than all that did. A refusal is no fast
answer: it is left out of the waits, and its share is stated beside them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

from pytest_llmperf.load.burst.fate import fate
from pytest_llmperf.record import Request
from pytest_llmperf.units import percent, quantity

_LEFT_OUT = ("refused", "not connected")


class Bounded(msgspec.Struct, frozen=True, kw_only=True):
    """A number of seconds, or what it is more than."""

    at_s: float
    is_more: bool = False
    """True: the request was not answered by then; the number is a bound from below."""

    @property
    def words(self) -> str:
        """``12.3 s``, or ``> 60.0 s``."""
        return f"{'> ' if self.is_more else ''}{quantity(self.at_s, 's')}"


class Waits(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds from due to the last token of every request that the server took on."""

    answered_s: tuple[float, ...] = ()
    """Of the completed ones, ascending."""
    unanswered_s: tuple[float, ...] = ()
    """How long the others had waited in vain when they ended, ascending."""
    left_out: int = 0
    """Refused, or never connected."""
    longest_left_out_s: float | None = None
    """How long the last of these was kept waiting for that."""
    undated: int = 0
    """Requests of which it is not recorded when they were due, or when they ended."""

    @property
    def taken(self) -> int:
        """Requests that count."""
        return len(self.answered_s) + len(self.unanswered_s)

    def quantile(self, p: float) -> Bounded | None:
        """The smallest wait that a share ``p`` does not exceed; ``None`` where none was taken on.

        Formula: the order statistic of rank ``ceil(p n)`` over the ``n`` requests taken on; those
        without an answer rank last, and are more than every wait that was answered.
        """
        if not self.taken:
            return None
        rank = max(1, math.ceil(p * self.taken - 1e-9))
        if rank <= len(self.answered_s):
            return Bounded(at_s=self.answered_s[rank - 1])
        in_vain = self.unanswered_s[rank - len(self.answered_s) - 1]
        longest = self.answered_s[-1] if self.answered_s else 0.0
        return Bounded(at_s=max(in_vain, longest), is_more=True)

    @property
    def beside(self) -> str:
        """What must stand beside every quantile, in words; empty where all were answered."""
        everyone = self.taken + self.left_out
        parts = []
        if self.unanswered_s:
            share = percent(len(self.unanswered_s) / self.taken)
            parts.append(f"{len(self.unanswered_s):,} ({share}) unanswered rank last")
        if self.left_out:
            share = percent(self.left_out / everyone)
            told = f"{self.left_out:,} ({share}) refused or not connected are left out"
            if self.longest_left_out_s is not None:
                told += f", told so within {quantity(self.longest_left_out_s, 's')}"
            parts.append(told)
        return "; ".join(parts)


def waits(requests: Iterable[Request]) -> Waits:
    """The waits of a burst's requests for their last token."""
    answered: list[float] = []
    unanswered: list[float] = []
    left_out: list[float | None] = []
    undated = 0
    for each in requests:
        found = _waited_s(each)
        if fate(each) in _LEFT_OUT:
            left_out.append(found)
            continue
        if found is None:
            undated += 1
        else:
            (answered if each.completed else unanswered).append(found)
    return Waits(
        answered_s=tuple(sorted(answered)),
        unanswered_s=tuple(sorted(unanswered)),
        left_out=len(left_out),
        longest_left_out_s=max((each for each in left_out if each is not None), default=None),
        undated=undated,
    )


def _waited_s(request: Request) -> float | None:
    stamps = request.stamps
    end_ns = stamps.last_token_ns if request.completed else stamps.closed_ns
    if stamps.due_ns is None or end_ns is None:
        return None
    return (end_ns - stamps.due_ns) / 1e9
