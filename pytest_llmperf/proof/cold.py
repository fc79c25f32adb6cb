"""Whether cold turns found nothing of their prompt in the cache.

Warm turns are in ``warm``; where usage and counters disagree is in ``agreement``.
"""

from __future__ import annotations

from pytest_llmperf.proof.agreement import ASK_DETAILS, counters_say, silent, span
from pytest_llmperf.proof.contradiction import Contradiction
from pytest_llmperf.proof.window import Window, some
from pytest_llmperf.record import Request
from pytest_llmperf.units import percent

COLD_SHARE = 0.01
"""Share of a prompt that may be cached in a turn that is declared cold."""


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
    unknown = silent(window) if window.denominator.prefix == "cold" else []
    if not unknown or _counters_prove_cold(window):
        return None
    return Contradiction(
        kind="cold_unproven",
        reason=f"{some(len(unknown), len(window.turns))} do not say how many tokens were cached.",
        evidence=f"Usage has no cached_tokens; the counters say: {counters_say(window)}.",
        remedy=f"{ASK_DETAILS}, or make the metrics page readable.",
    )


def _counters_prove_cold(window: Window) -> bool:
    """No hit at all in a window in which the counters saw all our requests."""
    return window.delta.prefix_hits == 0 and window.misses_requests is None


def _cold(window: Window) -> tuple[Request, ...]:
    return window.completed if window.denominator.prefix == "cold" else ()


def _is_warm(turn: Request) -> bool:
    cached, prompt = turn.usage.cached_tokens or 0, turn.usage.prompt_tokens
    return cached > 0 and (prompt is None or cached > COLD_SHARE * prompt)
