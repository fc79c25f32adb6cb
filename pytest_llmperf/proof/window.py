"""One arm's measurement with what the rules of proof all ask of it, computed once.

The rules are in the other rooms of ``proof``; the records come from ``evidence``.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from pytest_llmperf.counters import Delta, difference
from pytest_llmperf.denominator import Denominator
from pytest_llmperf.evidence import Measured, in_order
from pytest_llmperf.record import Request
from pytest_llmperf.units import counted


class Window:
    """A measured arm, its counters' growth, and all our traffic that they cover."""

    def __init__(self, measured: Measured, denominator: Denominator | None = None) -> None:
        self.measured = measured
        self.denominator = denominator or measured.arm.denominator

    @cached_property
    def turns(self) -> tuple[Request, ...]:
        """The arm's turns in the order sent, failed ones included."""
        return self.measured.turns

    @cached_property
    def completed(self) -> tuple[Request, ...]:
        """The turns that ended well."""
        return tuple(each for each in self.turns if each.completed)

    @cached_property
    def delta(self) -> Delta:
        """What the engine's counters grew by."""
        return difference(self.measured.before, self.measured.after)

    @cached_property
    def everything(self) -> tuple[Request, ...]:
        """All requests of the measurement, of every arm and role, in the order sent."""
        return tuple(in_order((*self.measured.requests, *self.measured.beside)))

    @cached_property
    def inside(self) -> tuple[Request, ...]:
        """Our requests of any arm that this engine had in hand between the two readings."""
        before, after = self.measured.before, self.measured.after
        return tuple(
            each
            for each in self.everything
            if self.boot_of(each) == self.measured.arm.boot_id
            and each.stamps.sent_ns is not None
            and (after is None or each.stamps.sent_ns <= after.at_ns)
            and (
                before is None
                or each.stamps.closed_ns is None
                or each.stamps.closed_ns >= before.at_ns
            )
        )

    def boot_of(self, request: Request) -> str | None:
        """The boot that a request went to; one that does not say goes where its arm's do."""
        arms = {each.name: each.boot_id for each in self.measured.measurement.arms}
        return request.boot_id or arms.get(request.arm or "")

    @property
    def is_readable(self) -> bool:
        """Whether both readings of the counters can be used."""
        readings = (self.measured.before, self.measured.after)
        return all(each is not None and each.readable for each in readings)

    @property
    def unreadable_why(self) -> str:
        """Why the counters cannot be used."""
        named = (("before", self.measured.before), ("after", self.measured.after))
        problems: dict[str, list[str]] = {}
        for when, each in named:
            if each is None or not each.readable:
                problem = each.problem if each is not None else None
                problems.setdefault(problem or "no reading is recorded", []).append(when)
        return "; ".join(f"{' and '.join(whens)}: {why}" for why, whens in problems.items())

    @cached_property
    def prompt_tokens(self) -> int | None:
        """Prompt tokens of our traffic inside; ``None`` if one request does not say."""
        return total(each.usage.prompt_tokens for each in self.inside)

    @cached_property
    def cached_tokens(self) -> int | None:
        """Cached tokens by usage of our traffic inside; ``None`` if one does not say."""
        return total(each.usage.cached_tokens for each in self.inside)

    @cached_property
    def output_tokens(self) -> int | None:
        """Output tokens by usage of our traffic inside; ``None`` if one does not say."""
        return total(each.usage.completion_tokens for each in self.inside)

    @property
    def misses_requests(self) -> str | None:
        """That the counters cannot have seen all that we sent, in words; else ``None``."""
        finished = self.delta.requests_finished
        ours = sum(each.completed for each in self.inside)
        if finished is None or ours == 0 or (finished > 0 and finished >= ours - 1):
            return None
        return f"the counters saw {finished:,.0f} of {counted(ours, 'request')} of ours end"


def total(numbers: Iterable[int | None]) -> int | None:
    """The sum, or ``None`` if one of them is unknown."""
    known = list(numbers)
    whole = [each for each in known if each is not None]
    return sum(whole) if len(whole) == len(known) else None


def growth(number: float | None, unit: str) -> str:
    """A counter's growth in words; unknown is said to be so."""
    return f"{unit} unknown" if number is None else f"{number:,.0f} {unit}"


def some(part: int, whole: int) -> str:
    """A share of the turns: ``3 of 30 turns``."""
    return f"{part:,} of {counted(whole, 'turn')}"
