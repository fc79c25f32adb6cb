"""What usage, counters and timing each say of the prefix cache, and where they disagree.

Usage is the proof, counters must agree with it, and timing never proves; the rules for turns
that are declared warm or cold are in ``warm`` and ``cold``.
"""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median

from pytest_llmperf.proof.contradiction import Contradiction, Finding
from pytest_llmperf.proof.window import Window, growth
from pytest_llmperf.record import Request
from pytest_llmperf.units import count, ratio

AGREEMENT = 0.01
"""Relative difference between usage and counters up to which they agree."""

SUSPECT_RATIO = 3.0
"""Priming over turns in time to first token from which a cache is suspected, never proven."""

ASK_DETAILS = "Start vLLM with --enable-prompt-tokens-details"
"""The flag without which usage has no cached tokens."""


def swapped(window: Window) -> Contradiction | None:
    """There were no more hits than lookups, where the prefix is part of the declaration."""
    found = _more_hits_than_lookups(window)
    if found is None or window.denominator.prefix == "any":
        return None
    return Contradiction(
        kind="counters_swapped",
        reason="The counters show more prefix hits than lookups.",
        evidence=f"{found}.",
        remedy="Check whether the metrics page names hits and queries the wrong way round.",
    )


def _more_hits_than_lookups(window: Window) -> str | None:
    hits, queries = window.delta.prefix_hits, window.delta.prefix_queries
    if hits is not None and queries is not None and hits > queries:
        return f"In the window {hits:,.0f} hits, {queries:,.0f} lookups"
    readings = (window.measured.before, window.measured.after)
    problems = [each.problem for each in readings if each is not None and each.readable]
    return next((each for each in problems if each and "prefix_hits" in each), None)


def counters_disagree(window: Window) -> Finding | None:
    """Usage and counters that give different hits or prompts for the same traffic."""
    pairs = (
        ("cached tokens", window.cached_tokens, window.delta.prefix_hits),
        ("prompt tokens looked up", window.prompt_tokens, window.delta.prefix_queries),
    )
    apart = [
        f"{what}: {usage:,} by usage, {counter:,.0f} by the counters"
        for what, usage, counter in pairs
        if usage is not None
        and counter is not None
        and abs(usage - counter) > AGREEMENT * max(usage, counter)
    ]
    if not apart:
        return None
    return Finding(
        kind="counters_disagree", text=f"Usage and counters disagree: {'; '.join(apart)}."
    )


def cache_suspected(window: Window) -> Finding | None:
    """Turns that are fast as if cached while neither usage nor counters show it."""
    if any(each.usage.cached_tokens for each in window.completed) or window.delta.prefix_hits:
        return None
    primes = _first_token_s(each for each in window.measured.requests if each.role == "prime")
    turns = _first_token_s(window.completed)
    if not primes or not turns or median(primes) < SUSPECT_RATIO * median(turns):
        return None
    return Finding(
        kind="cache_suspected",
        text="By timing alone a cached prefix is suspected: time to first token fell "
        f"{ratio(median(primes) / median(turns))} from priming to turns, and no hit is reported.",
    )


def _first_token_s(requests: Iterable[Request]) -> list[float]:
    return [
        (each.stamps.first_token_ns - each.stamps.sent_ns) / 1e9
        for each in requests
        if each.stamps.first_token_ns is not None and each.stamps.sent_ns is not None
    ]


def silent(window: Window) -> list[Request]:
    """Completed turns whose usage does not say how many tokens were cached."""
    return [each for each in window.completed if each.usage.cached_tokens is None]


def counters_say(window: Window) -> str:
    """The counters' hits and lookups over the window, or why there are none."""
    if not window.is_readable:
        return f"nothing ({window.unreadable_why})"
    hits = growth(window.delta.prefix_hits, "hits")
    return f"{hits}, {growth(window.delta.prefix_queries, 'lookups')}"


def span(numbers: list[int]) -> str:
    """Numbers of several turns: one if they are equal, else the least and the greatest."""
    if not numbers:
        return count(None)
    low, high = min(numbers), max(numbers)
    return count(low) if low == high else f"{count(low)} to {count(high)}"
