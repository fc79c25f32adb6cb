"""One burst as measured: its fates, waits, queue and rate, and what stands beside its numbers.

The parts are in ``burst``; what a test asserts of them is in ``claims``.
"""

from __future__ import annotations

from functools import cached_property
from statistics import median

from pytest_llmperf import counters, machine
from pytest_llmperf.evidence import Measured
from pytest_llmperf.load import burst
from pytest_llmperf.proof import Contradiction
from pytest_llmperf.units import count, counted, percent, quantile_name, quantity

_SHOWN = (0.5, 0.95, 0.99)


class Onset:
    """All requests of one burst on one boot."""

    def __init__(self, measured: Measured) -> None:
        self.measured = measured
        self.turns = measured.turns

    @cached_property
    def tally(self) -> burst.Tally:
        """The fates of its requests."""
        return burst.tally(self.turns, planned=self.measured.measurement.turns)

    @cached_property
    def waits(self) -> burst.Waits:
        """From due to the last token."""
        return burst.waits(self.turns)

    @cached_property
    def due_ns(self) -> int | None:
        """When it was due; ``None`` if not recorded."""
        known = [each.stamps.due_ns for each in self.turns if each.stamps.due_ns is not None]
        return min(known, default=None)

    @cached_property
    def backlog(self) -> burst.Backlog:
        """The server's queue from its pages while the burst was under way, and the one after."""
        after = self.measured.after
        pages = [*self.measured.during, *([] if after is None else [after])]
        if self.due_ns is None or not self.measured.during:
            return burst.Backlog(unread=len(pages))
        return burst.backlog(pages, since_ns=self.due_ns)

    @cached_property
    def aggregate_tps(self) -> float | None:
        """Output tokens of the completed requests, by usage, over the whole burst.

        Formula: sum(N) / (max t_last_token - min t_due). ``None`` where a completed request does
        not say its tokens, or none completed.
        """
        done = [each for each in self.turns if each.completed]
        tokens = [each.usage.completion_tokens for each in done]
        ends = [each.stamps.last_token_ns for each in done]
        if not done or self.due_ns is None or None in tokens or None in ends:
            return None
        span_ns = max(each or 0 for each in ends) - self.due_ns
        return sum(each or 0 for each in tokens) / (span_ns / 1e9) if span_ns > 0 else None

    @property
    def first_token_s(self) -> float | None:
        """Median wait from due to the first token, over the completed requests."""
        waited = [
            (each.stamps.first_token_ns - each.stamps.due_ns) / 1e9
            for each in self.turns
            if each.completed
            and each.stamps.first_token_ns is not None
            and each.stamps.due_ns is not None
        ]
        return median(waited) if waited else None

    @property
    def preemptions(self) -> float | None:
        """Requests that the engine set aside for want of memory, by its own counter."""
        return counters.difference(self.measured.before, self.measured.after).preemptions

    @property
    def beside(self) -> tuple[tuple[str, str], ...]:
        """(what it is, its value as text) of the same requests."""
        planned, found = self.tally.planned, self.backlog
        most, refused = found.most_open, self.tally.all_refused / max(planned, 1)
        waited = [(f"{quantile_name(p)}, due to last token", self._wait(p)) for p in _SHOWN]
        preempted = None if self.preemptions is None else round(self.preemptions)
        return (
            ("accepted by the server", f"{count(self.tally.accepted)} of {count(planned)}"),
            ("refused share", percent(refused)),
            ("open at the server at once", count(None if most is None else most.open)),
            *waited,
            ("median, due to first token", quantity(self.first_token_s, "s")),
            ("output tokens, whole burst", quantity(self.aggregate_tps, "tok/s")),
            ("preemptions", count(preempted)),
        )

    @property
    def on_machine(self) -> tuple[str, ...]:
        """A line each for the machine before, during and after; none for what was not watched."""
        states = self.measured.machine
        return tuple(
            f"The machine {when} the burst: {words}." for when, words in machine.phases(states)
        )

    def _wait(self, p: float) -> str:
        found = self.waits.quantile(p)
        return "none taken on" if found is None else found.words

    @cached_property
    def contradictions(self) -> tuple[Contradiction, ...]:
        """Why this is no account of the burst; empty where every request is accounted for."""
        found = (self._unaccounted(), self._undated())
        return tuple(each for each in found if each is not None)

    def _unaccounted(self) -> Contradiction | None:
        missing = self.tally.unaccounted
        if not missing:
            return None
        return Contradiction(
            kind="unaccounted",
            reason=f"Not every request of the burst is accounted for: {self.tally.words}.",
            evidence=f"{counted(missing, 'request')} without a record."
            if missing > 0
            else f"{counted(-missing, 'request')} more than were planned.",
            remedy="Run it again to its end; what was recorded stays in the evidence.",
        )

    def _undated(self) -> Contradiction | None:
        if not self.waits.undated:
            return None
        return Contradiction(
            kind="undated",
            reason=f"How long {counted(self.waits.undated, 'request')} waited is not recorded.",
            evidence="The time when a request was due, or when it ended, is missing.",
            remedy="Record the burst with this version of the plugin.",
        )
