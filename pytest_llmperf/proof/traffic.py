"""Whether the server worked for this measurement alone, and its counters saw all of it.

The counters' meanings are in ``counters``; our own requests are in the evidence.
"""

from __future__ import annotations

from pytest_llmperf.proof.contradiction import Contradiction, Finding
from pytest_llmperf.proof.window import Window
from pytest_llmperf.units import counted

IDLE_NS = 10_000_000_000
"""A pause after which an engine's next answer is known to be slower."""

_BACK_TO_BACK = "Stop whatever else uses this server, or measure a server of your own."


def foreign_traffic(window: Window) -> Contradiction | None:
    """The server finished, read and wrote no more than what we asked of it."""
    surplus = _surplus(window)
    if not surplus:
        return None
    return Contradiction(
        kind="foreign_traffic",
        reason="Foreign traffic in the measured window.",
        evidence=f"The server counted {'; '.join(surplus)}.",
        remedy=_BACK_TO_BACK,
    )


def _surplus(window: Window) -> list[str]:
    """Where the server did more than we sent; a failed request of ours may count in full."""
    delta, ours = window.delta, len(window.inside)
    drafts = window.measured.arm.declared.draft_tokens or 0
    # The engine may write up to one step past a stop string that the front end finds.
    overshoot = (drafts + 1) * ours
    sides = (
        ("finished requests", delta.requests_finished, ours, 0),
        ("prompt tokens", delta.prompt_tokens, window.prompt_tokens, 0),
        ("output tokens", delta.generation_tokens, window.output_tokens, overshoot),
    )
    return [
        f"{served:,.0f} {what}, {known:,} of them ours"
        for what, served, known, slack in sides
        if served is not None and known is not None and served > known + slack
    ]


def not_idle(window: Window) -> Contradiction | None:
    """No request ran or waited at the server before our first, nor after our last."""
    named = (("before", window.measured.before), ("after", window.measured.after))
    busy = [
        f"{number:,.0f} {state} {when} it"
        for when, reading in named
        if reading is not None
        for state, number in (
            ("running", reading.requests_running),
            ("waiting", reading.requests_waiting),
        )
        if number
    ]
    if not busy:
        return None
    return Contradiction(
        kind="not_idle",
        reason="The server was not idle around the measured window.",
        evidence=f"Requests: {', '.join(busy)}.",
        remedy=f"{_BACK_TO_BACK} After a cancelled request, wait until none is running.",
    )


def preempted(window: Window) -> Contradiction | None:
    """One stream at a time is never preempted."""
    preemptions = window.delta.preemptions
    if not preemptions or window.denominator.streams != 1:
        return None
    return Contradiction(
        kind="preempted",
        reason="The engine preempted a request while one stream was measured.",
        evidence=f"{preemptions:,.0f} preemptions in the window.",
        remedy="Give the KV cache more memory, or keep other traffic off the server.",
    )


def counters_partial(window: Window) -> Contradiction | None:
    """Counters that must prove something saw our requests."""
    missed = window.misses_requests
    if missed is None or window.measured.arm.declared.speculation is None:
        return None
    return Contradiction(
        kind="counters_partial",
        reason="The server's counters are not of the traffic that was measured.",
        evidence=f"In the window {missed}.",
        remedy="Read the metrics page of the engine itself; "
        "with several API processes each page shows one of them.",
    )


def counters_partly(window: Window) -> Finding | None:
    """Counters that nothing depends on did not see our requests."""
    missed = window.misses_requests
    if missed is None or counters_partial(window) is not None:
        return None
    return Finding(
        kind="counters_partial",
        text=f"The counters are not of this traffic alone: {missed}; foreign traffic is unchecked.",
    )


def unchecked(window: Window) -> Finding | None:
    """Without counters, nobody knows who else used the server."""
    if window.is_readable:
        return None
    return Finding(
        kind="traffic_unchecked",
        text=f"Foreign traffic is unchecked: no counters ({window.unreadable_why}).",
    )


def odd_counters(window: Window) -> Finding | None:
    """What the readings themselves say is odd."""
    readings = (window.measured.before, window.measured.after)
    problems = dict.fromkeys(
        each.problem for each in readings if each is not None and each.readable and each.problem
    )
    if not problems:
        return None
    return Finding(kind="odd_counters", text=f"The metrics page is odd: {'; '.join(problems)}.")


def idle_gaps(window: Window) -> Finding | None:
    """Turns that came after a pause of the engine, while others did not; of a load, none do."""
    if window.denominator.is_load:
        return None
    engine = [
        each for each in window.everything if window.boot_of(each) == window.measured.arm.boot_id
    ]
    late = 0
    closed_ns: int | None = None
    for each in engine:
        sent_ns = each.stamps.sent_ns
        if closed_ns is not None and sent_ns is not None and each.role == "turn":
            late += sent_ns - closed_ns >= IDLE_NS and each.arm == window.measured.arm.name
        closed_ns = each.stamps.closed_ns or closed_ns
    if not late or late == len(window.turns):
        return None
    return Finding(
        kind="idle_gaps",
        text=f"{counted(late, 'turn')} of {len(window.turns)} came after the engine had been idle "
        f"for {IDLE_NS // 10**9} s or more, the others did not.",
    )
