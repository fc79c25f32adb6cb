"""Whether warm turns were cached as block size, drafter and common prefix allow; usage proves it.

Cold turns are in ``cold``; where usage and counters disagree is in ``agreement``.
"""

from __future__ import annotations

import math

from pytest_llmperf.proof.agreement import ASK_DETAILS, counters_say, silent, span
from pytest_llmperf.proof.contradiction import Contradiction, Finding
from pytest_llmperf.proof.window import Window, some
from pytest_llmperf.record import Request
from pytest_llmperf.units import count

COMMON_SHARE = 0.5
"""Share of a prompt that must be common to what went before, where no share is declared."""

RETENTION = "--prefix-cache-retention-interval"
"""The flag without which layers with a sliding window keep too few prefix blocks."""


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
    unknown = silent(window)
    if not unknown:
        return None
    return Contradiction(
        kind="cached_unknown",
        reason=f"{some(len(unknown), len(window.turns))} do not say how many tokens were cached.",
        evidence=f"Usage has no cached_tokens; the counters say: {counters_say(window)}.",
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
        f"the counters say: {counters_say(window)}.",
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


def _warm(window: Window) -> tuple[Request, ...]:
    return window.completed if window.denominator.prefix == "warm" else ()


def _is_short(turn: Request) -> bool:
    common, prompt = turn.common_prefix_tokens, turn.usage.prompt_tokens
    return common is not None and prompt is not None and common < COMMON_SHARE * prompt


def _difference(turn: Request) -> str:
    common, prompt = turn.common_prefix_tokens, turn.usage.prompt_tokens
    if common is None:
        return f"No hit is expected in {turn.request_id}"
    return f"The prompt differs from token {count(common)} on, of {count(prompt)}"
