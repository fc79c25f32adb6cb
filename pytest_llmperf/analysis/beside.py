"""What stands beside a gate's number: the same samples counted otherwise, and how the load went.

Values of single turns are in ``sample``, what was in flight in ``in_flight``; the table that shows
them is in ``report``.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

import msgspec

from pytest_llmperf.denominator import BUILT_IN, DECODE_THROUGHPUT, Denominator
from pytest_llmperf.load.in_flight import mean_flight, rates
from pytest_llmperf.run import Pair, Run
from pytest_llmperf.sample import Counted, every_denominator, window_values
from pytest_llmperf.units import counted, quantity

Beside = tuple[tuple[str, str], ...]
"""(What it is, its value as text), in the order shown."""


def numbers_beside(run: Run) -> Beside:
    """The same turns under every other denominator that they can be counted by.

    Of a load, what each request had by itself and what all had together stand apart, with the
    requests in flight and the rates.
    """
    own = run.denominator
    drafts = run.measured.arm.declared.draft_tokens
    rows = (
        (_labelled(each), quantity(each.median, each.unit))
        for each in every_denominator(run.turns, drafts, own.arrival)
        if (each.clock, each.unit) != (own.clock, own.unit_text)
    )
    if not own.is_load:
        return tuple(rows)
    alone = ((f"each request: {label}", value) for label, value in rows)
    return (*_together(run), *alone)


def _together(run: Run) -> Iterator[tuple[str, str]]:
    """All requests of a load: their throughput, how many were in flight, and their rates."""
    own = run.denominator
    if own.clock != "span":
        whole = msgspec.structs.replace(own, clock="span", unit="output_token")
        found = [value for boot in run.boots for value in window_values(boot.turns, whole)]
        value = median(found) if found else None
        yield "all requests together: output tokens a second", quantity(value, "tok/s")
    flown = mean_flight(run.measured.requests)
    if flown is not None:
        yield "requests in flight, mean", f"{flown.mean:.1f} (peak {flown.peak})"
    found_rates = rates(run.measured.turns, own)
    if found_rates is not None:
        offered = f"{found_rates.offered_rps:.3g} (declared {found_rates.declared_rps:.3g})"
        yield "offered requests a second", offered
        yield "achieved requests a second", f"{found_rates.achieved_rps:.3g}"


def _labelled(counted_so: Counted) -> str:
    """What a number is, with how many turns can be counted so where it is not all of them."""
    if not counted_so.undefined:
        return counted_so.label
    turns = counted_so.n + counted_so.undefined
    return f"{counted_so.label}, of {counted_so.n} of {counted(turns, 'turn')}"


def ratios_beside(pair: Pair) -> Beside:
    """The same blocks' ratio under the other clocks, where every turn has a value."""
    of = pair.of
    found = []
    for clock, label in _OTHER_RATIOS.items():
        if clock.clock != of.clock:
            alike = msgspec.structs.replace(clock, arrival=of.arrival)
            found.append((label, quantity(pair.ratio(alike), "x")))
    return tuple(found)


_OTHER_RATIOS: dict[Denominator, str] = {
    BUILT_IN["single_stream"]: "whole turn, wall clock",
    BUILT_IN["time_to_first_token"]: "time to first token",
    DECODE_THROUGHPUT: "decode only",
}
"""The clocks whose ratios stand beside a gate's own."""
