"""The evidence for one number as one line for a person.

What makes it a proof is in the other rooms of ``proof``; where it is printed is in ``report``.
"""

from __future__ import annotations

from pytest_llmperf.proof.agreement import span
from pytest_llmperf.proof.cold import COLD_SHARE
from pytest_llmperf.proof.fitness import fitness_words
from pytest_llmperf.proof.warm import required_hits
from pytest_llmperf.proof.window import Window, some
from pytest_llmperf.record import Request
from pytest_llmperf.units import counted, percent


def line(window: Window) -> str:
    """Cache, drafter, machine in words: ``30 of 30 turns cached, 2,176 of 2,240 tokens; ...``."""
    machine = fitness_words(window) or "machine not watched"
    return f"{_cache(window)}; {_speculation(window)}; {machine}"


def _cache(window: Window) -> str:
    known = [each for each in window.completed if each.usage.cached_tokens is not None]
    if not known:
        return "cached tokens not measured"
    cached = span([each.usage.cached_tokens or 0 for each in known])
    prompts = span([n for each in known if (n := each.usage.prompt_tokens) is not None])
    tokens = f"{cached} of {prompts} tokens"
    match window.denominator.prefix:
        case "warm":
            return f"{some(_hits(window, known), len(window.turns))} cached, {tokens}"
        case "cold":
            return f"{some(sum(map(_is_cold, known)), len(window.turns))} cold, {tokens} cached"
        case _:
            return f"{tokens} cached"


def _hits(window: Window, known: list[Request]) -> int:
    share = window.measured.measurement.min_cached_share
    needed = [(each.usage.cached_tokens or 0, required_hits(each, share)) for each in known]
    return sum(bool(required) and cached >= (required or 0) for cached, required in needed)


def _is_cold(turn: Request) -> bool:
    return (turn.usage.cached_tokens or 0) <= COLD_SHARE * (turn.usage.prompt_tokens or 0)


def _speculation(window: Window) -> str:
    delta = window.delta
    if not window.is_readable or delta.restarted is not None:
        return "drafts not measured"
    if not delta.drafts:
        return "no drafts"
    length, share = delta.acceptance_length, delta.acceptance
    if length is None or share is None:
        return f"{counted(int(delta.drafts), 'draft')}, acceptance not measured"
    return (
        f"{counted(int(delta.drafts), 'draft')}, acceptance length {length:.1f} "
        f"({percent(share)} of drafted tokens)"
    )
