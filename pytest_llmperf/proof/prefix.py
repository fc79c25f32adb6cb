"""Whether the prefix was cached, or was not, as the denominator declares; timing never proves it.

The server's usage is the proof, request by request; its counters must agree where they are there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from statistics import median

from pytest_llmperf.proof.contradiction import Contradiction, Finding
from pytest_llmperf.proof.window import Window, growth, some
from pytest_llmperf.record import Request
from pytest_llmperf.units import count, percent, ratio

COLD_SHARE = 0.01
"""Share of a prompt that may be cached in a turn that is declared cold."""

COMMON_SHARE = 0.5
"""Share of a prompt that must be common to what went before, where no share is declared."""

AGREEMENT = 0.01
"""Relative difference between usage and counters up to which they agree."""

SUSPECT_RATIO = 3.0
"""Priming over turns in time to first token from which a cache is suspected, never proven."""

ASK_DETAILS = "Start vLLM with --enable-prompt-tokens-details"
RETENTION = "--prefix-cache-retention-interval"


def expected_hits(
    common_prefix_tokens: int | None, block_size: int | None, speculation: bool
) -> int | None:
    """Prompt tokens that the prefix cache must give; ``None`` where an input is unknown.

    Formula: floor(common / block) * block, one block less with a drafter, never below zero.
    The last token of a prompt is always computed: a prompt repeated whole has one less in common.
    """
    if common_prefix_tokens is None or not block_size:
        return None
    blocks = common_prefix_tokens // block_size - (1 if speculation else 0)
    return max(blocks, 0) * block_size


def required_hits(turn: Request, min_cached_share: float | None) -> int | None:
    """Cached tokens that make this turn a cached one; ``None`` where nobody states any.

    A declared share goes before what block size and common prefix would allow.
    """
    if min_cached_share is None:
        return turn.expected_cached_tokens
    prompt = turn.usage.prompt_tokens
    return None if prompt is None else math.ceil(min_cached_share * prompt - 1e-9)


def cached_unknown(window: Window) -> Contradiction | None:
    """The server says for every warm turn how many tokens were cached."""
    if window.denominator.prefix != "warm":
        return None
    unknown = _unknown(window)
    if not unknown:
        return None
    return Contradiction(
        kind="cached_unknown",
        reason=f"{some(len(unknown), len(window.turns))} do not say how many tokens were cached.",
        evidence=f"Usage has no cached_tokens; the counters say: {_counters(window)}.",
        remedy=f"{ASK_DETAILS}; only usage proves a cached turn.",
    )


def requirement_unknown(window: Window) -> Contradiction | None:
    """It is known for every warm turn how many tokens had to be cached."""
    share = window.measured.measurement.min_cached_share
    unknown = [each for each in _warm(window) if required_hits(each, share) is None]
    if not unknown:
        return None
    what = "common prefix" if share is None else "prompt's length"
    return Contradiction(
        kind="requirement_unknown",
        reason=f"For {some(len(unknown), len(window.turns))} it is not known "
        "how many tokens had to be cached.",
        evidence=f"The {what} in tokens is unknown, so a hit of any size proves nothing.",
        remedy="State min_cached_share in the marker, or serve /tokenize."
        if share is None
        else "Have the server send usage with prompt_tokens.",
    )


def nothing_cacheable(window: Window) -> Contradiction | None:
    """Something of every warm turn could be cached at all."""
    share = window.measured.measurement.min_cached_share
    empty = [each for each in _warm(window) if required_hits(each, share) == 0]
    if not empty:
        return None
    first = empty[0]
    return Contradiction(
        kind="nothing_cacheable",
        reason=f"In {some(len(empty), len(window.turns))} nothing could be cached: "
        "a warm turn without a hit to expect proves nothing.",
        evidence=f"{_difference(first)}; a cache keeps whole blocks, one less with a drafter.",
        remedy="Take out what changes at the head of the prompt (a date, a random id), "
        "or measure a longer conversation.",
    )


def prefix_differs(window: Window) -> Contradiction | None:
    """A warm turn repeats the better part of what went before, where no share is declared."""
    share = window.measured.measurement.min_cached_share
    short = [
        each
        for each in _warm(window)
        if _is_short(each) and share is None and required_hits(each, share)
    ]
    if not short:
        return None
    return Contradiction(
        kind="prefix_differs",
        reason=f"{some(len(short), len(window.turns))} share less than half of their prompt "
        "with what was sent before.",
        evidence=f"{_difference(short[0])}.",
        remedy="Take out what changes early in the prompt (a date, a random id), "
        "or declare the share that is meant with min_cached_share.",
    )


def not_cached(window: Window) -> Contradiction | None:
    """Every warm turn has at least the cached tokens that are required."""
    short = _short_of_hits(window)
    if not short:
        return None
    share = window.measured.measurement.min_cached_share
    cached = [each.usage.cached_tokens or 0 for each in short]
    wanted = [required_hits(each, share) or 0 for each in short]
    return Contradiction(
        kind="not_cached",
        reason=f"{some(len(short), len(window.turns))} were not cached as declared.",
        evidence=f"There {span(cached)} tokens were cached where {span(wanted)} were expected; "
        f"the counters say: {_counters(window)}.",
        remedy=_cause(window, short),
    )


def _short_of_hits(window: Window) -> list[Request]:
    share = window.measured.measurement.min_cached_share
    return [
        each
        for each in _warm(window)
        if (required := required_hits(each, share)) is not None
        and each.usage.cached_tokens is not None
        and each.usage.cached_tokens < required
    ]


def _cause(window: Window, short: list[Request]) -> str:
    """The likeliest cause of missing hits, by their pattern."""
    if all(_is_short(each) for each in short):
        return f"{_difference(short[0])}: a date or an id at the head of the prompt?"
    all_zero = all(each.usage.cached_tokens == 0 for each in window.completed)
    queries, hits = window.delta.prefix_queries, window.delta.prefix_hits
    if not all_zero:
        return (
            f"The cache kept some of the prefix only: set {RETENTION} to the block size "
            "(sliding-window layers keep few blocks), or give the KV cache more memory."
        )
    if hits:
        return "Usage and counters disagree: is the usage rewritten on its way to us?"
    if queries:
        return (
            "The cache was asked and never hit: are blocks kept "
            f"({RETENTION}), and is the prompt the same from its first token on?"
        )
    return "Prefix caching off? Start vLLM with --enable-prefix-caching."


def not_cold(window: Window) -> Contradiction | None:
    """No cold turn had more than a trace of its prompt cached."""
    warm = [each for each in _cold(window) if _is_warm(each)]
    if not warm:
        return None
    cached = [each.usage.cached_tokens or 0 for each in warm]
    prompts = [each.usage.prompt_tokens for each in warm if each.usage.prompt_tokens is not None]
    return Contradiction(
        kind="not_cold",
        reason=f"{some(len(warm), len(window.turns))} were declared cold and had a cached prefix.",
        evidence=f"There {span(cached)} of {span(prompts)} prompt tokens were cached; "
        f"{percent(COLD_SHARE)} is allowed.",
        remedy="Begin every cold prompt with a nonce, before the system prompt; "
        "a seed or a prompt used twice warms the cache.",
    )


def cold_unproven(window: Window) -> Contradiction | None:
    """A cold turn's usage says that nothing was cached, or the counters prove it for all."""
    unknown = _unknown(window) if window.denominator.prefix == "cold" else []
    if not unknown or _counters_prove_cold(window):
        return None
    return Contradiction(
        kind="cold_unproven",
        reason=f"{some(len(unknown), len(window.turns))} do not say how many tokens were cached.",
        evidence=f"Usage has no cached_tokens; the counters say: {_counters(window)}.",
        remedy=f"{ASK_DETAILS}, or make the metrics page readable.",
    )


def _counters_prove_cold(window: Window) -> bool:
    """No hit at all in a window in which the counters saw all our requests."""
    return window.delta.prefix_hits == 0 and window.misses_requests is None


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


def below_expected(window: Window) -> Finding | None:
    """Turns that reach the declared share but not what the cache would allow."""
    below = [
        each
        for each in _warm(window)
        if each.usage.cached_tokens is not None
        and each.expected_cached_tokens is not None
        and each.usage.cached_tokens < each.expected_cached_tokens
    ]
    if not below or _short_of_hits(window):
        return None
    return Finding(
        kind="below_expected",
        text=f"{some(len(below), len(window.turns))} reach the declared share but fewer cached "
        f"tokens than block size and common prefix allow ({count(below[0].usage.cached_tokens)} "
        f"of {count(below[0].expected_cached_tokens)}).",
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


def _warm(window: Window) -> tuple[Request, ...]:
    return window.completed if window.denominator.prefix == "warm" else ()


def _cold(window: Window) -> tuple[Request, ...]:
    return window.completed if window.denominator.prefix == "cold" else ()


def _unknown(window: Window) -> list[Request]:
    return [each for each in window.completed if each.usage.cached_tokens is None]


def _is_warm(turn: Request) -> bool:
    cached, prompt = turn.usage.cached_tokens or 0, turn.usage.prompt_tokens
    return cached > 0 and (prompt is None or cached > COLD_SHARE * prompt)


def _is_short(turn: Request) -> bool:
    common, prompt = turn.common_prefix_tokens, turn.usage.prompt_tokens
    return common is not None and prompt is not None and common < COMMON_SHARE * prompt


def _difference(turn: Request) -> str:
    common, prompt = turn.common_prefix_tokens, turn.usage.prompt_tokens
    if common is None:
        return f"No hit is expected in {turn.request_id}"
    return f"The prompt differs from token {count(common)} on, of {count(prompt)}"


def _counters(window: Window) -> str:
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
