"""Whether each turn's record can be true by itself: its stamps in order, its counts in bounds.

A record that contradicts itself was miscounted by the server, or changed after it was written.
Where usage, counters and declaration disagree with each other is in ``agreement`` and ``values``.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from pytest_llmperf.proof.contradiction import Contradiction
from pytest_llmperf.proof.window import Window, some
from pytest_llmperf.record import Request
from pytest_llmperf.units import count, quantity

_IN_ORDER = (
    *("due_ns", "sent_ns", "first_byte_ns", "first_event_ns"),
    *("first_token_ns", "last_token_ns", "closed_ns"),
)
"""A request's stamps, as they follow one another on one clock."""

_GOOD = range(200, 300)


def out_of_order(window: Window) -> Contradiction | None:
    """Every completed turn's stamps follow one another, those of its chunks among them."""
    found = _broken(window, _misplaced)
    if not found:
        return None
    return Contradiction(
        kind="stamps_out_of_order",
        reason=f"{some(len(found), len(window.turns))} have stamps that cannot be.",
        evidence=f"{found[0]}.",
        remedy="One clock never runs backwards: was the evidence changed? Record it again.",
    )


def miscounted(window: Window) -> Contradiction | None:
    """Every completed turn's status and counts of tokens are those of an answer."""
    found = _broken(window, _impossible)
    if not found:
        return None
    return Contradiction(
        kind="miscounted",
        reason=f"{some(len(found), len(window.turns))} have an answer that cannot be.",
        evidence=f"{found[0]}.",
        remedy="Look for a proxy that rewrites usage, and whether the evidence was changed; "
        "no number over such counts is one.",
    )


def _broken(window: Window, why: Callable[[Request], str | None]) -> list[str]:
    found = ((each.request_id, why(each)) for each in window.completed)
    return [f"In {which} {words}" for which, words in found if words is not None]


def _misplaced(turn: Request) -> str | None:
    stamps = ((name, getattr(turn.stamps, name)) for name in _IN_ORDER)
    known = [(name, at) for name, at in stamps if at is not None]
    for (earlier, one), (later, two) in pairwise(known):
        if two < one:
            return f"{later} is {quantity((one - two) / 1e9, 's')} before {earlier}"
    first, last = turn.stamps.first_token_ns, turn.stamps.last_token_ns
    at = [each.at_ns for each in turn.chunks]
    if at != sorted(at):
        return "a chunk is stamped before the one that it follows"
    if at and ((first is not None and at[0] < first) or (last is not None and at[-1] > last)):
        return "a chunk is stamped before the first token or after the last"
    return None


def _impossible(turn: Request) -> str | None:
    made, cached, asked = turn.usage.completion_tokens, turn.usage.cached_tokens, turn.max_tokens
    if turn.http_status is not None and turn.http_status not in _GOOD:
        return f"a turn that completed was answered with HTTP {turn.http_status}"
    if made is not None and asked is not None and made > asked:
        return f"usage says {count(made)} output tokens where at most {count(asked)} were asked for"
    if made is not None and made <= 0 and turn.chunks:
        return f"usage says {count(made)} output tokens, and chunks brought some"
    if cached is not None and cached < 0:
        return f"usage says {count(cached)} cached tokens"
    return None
