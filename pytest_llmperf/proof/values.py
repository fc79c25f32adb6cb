"""Whether every turn has a number under the denominator, and its tokens add up.

How a number is formed is in ``sample``; whether it stands still over the turns is in ``steady``.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from statistics import median

import msgspec

from pytest_llmperf.load.in_flight import windows_of
from pytest_llmperf.proof.contradiction import Contradiction, Finding
from pytest_llmperf.proof.window import Window, some
from pytest_llmperf.record import Request
from pytest_llmperf.sample import inter_chunk_gap_s, reason_undefined, value
from pytest_llmperf.units import count, percent

LENGTH_TOLERANCE = 0.05
"""How far a prompt may be from its declared length, and turns from each other."""

LAG_SHARE = 0.5
"""Share of the inter-chunk gap by which our own event loop may run late."""

LAG_OF_INTERVAL = 0.02
"""Share of the measured interval under which being late does not matter to the number."""

LAGGING_TURNS = 0.1
"""Share of the turns that may be disturbed so; a pause of the machine is not a bottleneck."""


def uncounted(window: Window) -> Contradiction | None:
    """Every completed turn's output tokens are known where the denominator counts them."""
    if window.denominator.unit != "output_token":
        return None
    unknown = [each for each in window.completed if each.usage.completion_tokens is None]
    if not unknown:
        return None
    return Contradiction(
        kind="tokens_unknown",
        reason=f"{some(len(unknown), len(window.turns))} have no count of output tokens.",
        evidence="The server's usage gives none, and chunks are not tokens.",
        remedy="Have the server send usage (stream_options.include_usage), "
        "or measure seconds per request.",
    )


def undefined(window: Window) -> Contradiction | None:
    """Every completed turn has a number under the declared denominator."""
    drafts = window.measured.arm.declared.draft_tokens
    found = (reason_undefined(each, window.denominator, drafts) for each in window.completed)
    reasons = Counter(reason for reason in found if reason is not None)
    if not reasons or uncounted(window) is not None:
        return None
    listed = "; ".join(f"{n} because {reason}" for reason, n in sorted(reasons.items()))
    return Contradiction(
        kind="undefined",
        reason=f"{some(sum(reasons.values()), len(window.turns))} have no "
        f"{window.denominator.name}: {window.denominator.formula} is undefined.",
        evidence=f"{listed}.",
        remedy=_undefined_remedy(window),
    )


def _undefined_remedy(window: Window) -> str:
    if window.denominator.clock == "decode":
        return (
            "Ask for longer answers; look for a proxy that buffers the stream and for "
            "--stream-interval; have token counts by chunk (return_token_ids, "
            "continuous_usage_stats)."
        )
    return "Look at these turns' stamps in the evidence."


def peak_below_mean(window: Window) -> Contradiction | None:
    """No stream's fastest chunk is slower than its mean: else the tokens are miscounted."""
    broken = [each for each in window.completed if _is_peak_below_mean(each)]
    if not broken:
        return None
    chunks = sum(each.tokens or 0 for each in broken[0].chunks)
    return Contradiction(
        kind="peak_below_mean",
        reason=f"{some(len(broken), len(window.turns))} have a peak rate below their mean rate.",
        evidence=f"In {broken[0].request_id} the chunks hold {count(chunks)} tokens, "
        f"the usage says {count(broken[0].usage.completion_tokens)}.",
        remedy="Count tokens by the server's usage or token ids, never by chunks.",
    )


def _is_peak_below_mean(turn: Request) -> bool:
    reads: dict[int, int] = {}
    for each in turn.chunks:  # chunks of one read share its stamp: between them no time is known
        if each.tokens is None:
            return False
        reads[each.at_ns] = reads.get(each.at_ns, 0) + each.tokens
    every = turn.usage.completion_tokens
    if len(reads) < 2 or every is None:  # noqa: PLR2004 - a rate needs two reads
        return False
    moments = list(reads.items())
    (first_ns, first_tokens), (last_ns, _) = moments[0], moments[-1]
    mean = (every - first_tokens) / (last_ns - first_ns)
    peak = max(tokens / (later - earlier) for (earlier, _), (later, tokens) in pairwise(moments))
    return peak < mean * (1 - 1e-9)


def client_bottleneck(window: Window) -> Contradiction | None:
    """Our own event loop was not late by a share of what it timed.

    Turns that overlap share every pause of the client, and a window of load has one number, a
    quantile over its turns: there it counts whether the typical turn of a window was late.
    """
    late = _late(window)
    if not _is_often(window, [each for each, _, _ in late]):
        return None
    lag_s, gap_s = median(lag for _, lag, _ in late), median(gap for _, _, gap in late)
    return Contradiction(
        kind="client_bottleneck",
        reason=f"The client was the bottleneck in {some(len(late), len(window.turns))}.",
        evidence=f"There its event loop ran late by {1000 * lag_s:.1f} ms (99th percentile), "
        f"the gap between chunks was {1000 * gap_s:.1f} ms; half of it is allowed.",
        remedy="Give the client a core of its own, or run it on another machine.",
    )


def client_late(window: Window) -> Finding | None:
    """Turns that our own event loop disturbed, too few to spoil the measurement."""
    late = _late(window)
    if not late or client_bottleneck(window) is not None:
        return None
    return Finding(
        kind="client_late",
        text=f"In {some(len(late), len(window.turns))} the client's event loop ran late by more "
        "than half of the gap between chunks.",
    )


def _is_often(window: Window, late: list[Request]) -> bool:
    """Whether so many turns, or windows of load, were late that it is no pause of the machine."""
    if not window.denominator.is_load:
        return len(late) > LAGGING_TURNS * len(window.turns)
    all_windows, late_windows = windows_of(window.turns), windows_of(late)
    typical = [
        block for block, found in late_windows.items() if 2 * len(found) > len(all_windows[block])
    ]
    return len(typical) > LAGGING_TURNS * len(all_windows)


def _late(window: Window) -> list[tuple[Request, float, float]]:
    """Turns with their lag and gap in seconds whose lag is a share of gap and of the number."""
    late = []
    for each in window.completed:
        gap_s, interval_s = inter_chunk_gap_s(each), _timed_s(window, each)
        if each.loop_lag_ns is None or gap_s is None or interval_s is None:
            continue
        lag_s = each.loop_lag_ns / 1e9
        if lag_s > LAG_SHARE * gap_s > 0 and lag_s > LAG_OF_INTERVAL * interval_s:
            late.append((each, lag_s, gap_s))
    return late


def _timed_s(window: Window, turn: Request) -> float | None:
    """The interval that a turn's stamps bound: its own, or that of all streams together."""
    of = window.denominator
    if of.clock != "span":
        return value(turn, msgspec.structs.replace(of, unit="request"))
    together = [each for each in window.completed if each.block == turn.block]
    sent = [at for each in together if (at := each.stamps.sent_ns) is not None]
    ends = [at for each in together if (at := each.stamps.last_token_ns) is not None]
    return (max(ends) - min(sent)) / 1e9 if sent and ends else None


def prompt_length(window: Window) -> Contradiction | None:
    """Prompts have the length that the workload states."""
    off = [
        (stated, prompt)
        for each in window.completed
        if (stated := each.declared_prompt_tokens) is not None
        and (prompt := each.usage.prompt_tokens) is not None
        and abs(prompt - stated) > LENGTH_TOLERANCE * stated
    ]
    if not off:
        return None
    stated, prompt = off[0]
    return Contradiction(
        kind="prompt_length",
        reason=f"{some(len(off), len(window.turns))} have a prompt of undeclared length.",
        evidence=f"Declared {count(stated)} tokens, the server's usage says {count(prompt)}; "
        f"{percent(LENGTH_TOLERANCE)} is allowed.",
        remedy="Measure the prompt with the server's own tokenizer and declare that length.",
    )


def unequal_turns(window: Window) -> Finding | None:
    """Prompts of the turns, or answers that are waited for to their end, that differ in length."""
    usages = [each.usage for each in window.completed]
    lengths = {"prompts": [each.prompt_tokens for each in usages]}
    if window.denominator.clock == "wall" and window.denominator.unit == "request":
        lengths["answers"] = [each.completion_tokens for each in usages]
    differing = [
        f"{what} are {count(min(known))} to {count(max(known))} tokens long"
        for what, said in lengths.items()
        if (known := [each for each in said if each is not None])
        and max(known) - min(known) > LENGTH_TOLERANCE * max(known)
    ]
    if not differing:
        return None
    text = " and ".join(differing)
    return Finding(
        kind="unequal_turns",
        text=f"{text[0].upper()}{text[1:]}: their spread is part of the numbers' spread.",
    )


def retokenised(window: Window) -> Finding | None:
    """Counts that a tokenizer made and not the server."""
    found = sum(each.tokens_from == "retokenised" for each in window.completed)
    if not found:
        return None
    return Finding(
        kind="retokenised",
        text=f"{some(found, len(window.turns))} have their output counted by a tokenizer, "
        "not by the server.",
    )


def after_cache(window: Window) -> Contradiction | None:
    """No server counts its prompt tokens only after the cache, nor more hits than prompt."""
    odd = [
        each
        for each in window.completed
        if (prompt := each.usage.prompt_tokens) is not None
        and (prompt <= 0 or (each.usage.cached_tokens or 0) > prompt)
    ]
    if not odd or window.denominator.prefix == "any":
        return None
    usage = odd[0].usage
    return Contradiction(
        kind="usage_inconsistent",
        reason=f"{some(len(odd), len(window.turns))} have a usage that cannot be.",
        evidence=f"In {odd[0].request_id}: {count(usage.prompt_tokens)} prompt tokens, "
        f"{count(usage.cached_tokens)} of them cached.",
        remedy="This server counts prompt tokens after the cache; measure with prefix='any'.",
    )
