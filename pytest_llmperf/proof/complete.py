"""Whether the measurement is all there, and came from the one engine that it names.

What the turns then prove is in the other rooms of ``proof``.
"""

from __future__ import annotations

from collections import Counter

from pytest_llmperf.proof.contradiction import Contradiction, Finding
from pytest_llmperf.proof.window import Window, some
from pytest_llmperf.record import EngineEnd, Request
from pytest_llmperf.stream.doubt import SPLICED
from pytest_llmperf.units import counted


def not_completed(window: Window) -> Contradiction | None:
    """The end of a measurement is recorded, and says that it was completed."""
    end = window.measured.end
    if end is not None and end.completed:
        return None
    return Contradiction(
        kind="incomplete",
        reason="The measurement was not completed.",
        evidence="Its end is not recorded: the run was cut short."
        if end is None
        else f"It stopped early: {end.reason or 'no reason is recorded'}.",
        remedy="Run it again to its end."
        if end is None or end.reason == "interrupted"
        else "Remove the cause, then run it again to its end.",
    )


def fewer_turns(window: Window) -> Contradiction | None:
    """As many turns were sent as were planned."""
    planned = window.measured.measurement.turns
    if len(window.turns) >= planned and window.turns:
        return None
    return Contradiction(
        kind="fewer_turns",
        reason=f"{len(window.turns)} of {counted(planned, 'turn')} were sent.",
        evidence=f"The plan of {window.measured.arm.name} is {counted(planned, 'turn')}.",
        remedy="Run the measurement again to its end.",
    )


def failed_turns(window: Window) -> Contradiction | None:
    """Every turn completed; a failed one is counted, never dropped. A burst counts its fates."""
    failed = [each for each in window.turns if each.failure is not None]
    if not failed or window.denominator.arrival == "burst":
        return None
    return Contradiction(
        kind="failed_requests",
        reason=f"{some(len(failed), len(window.turns))} failed: {_kinds(failed)}.",
        evidence=f"The first: {_first_failure(failed)}.",
        remedy="Look into the engine's log; a slower server must not look faster by failing.",
    )


def failed_others(window: Window) -> Finding | None:
    """Priming and warm-up requests that failed."""
    failed = [
        each
        for each in window.measured.requests
        if each.failure is not None and each.role != "turn"
    ]
    if not failed:
        return None
    return Finding(
        kind="failed_requests",
        text=f"{counted(len(failed), 'priming or warm-up request')} failed "
        f"({_kinds(failed)}); the first: {_first_failure(failed)}.",
    )


def _kinds(failed: list[Request]) -> str:
    kinds = Counter(each.failure.kind for each in failed if each.failure is not None)
    return ", ".join(f"{number} {kind}" for kind, number in sorted(kinds.items()))


def _first_failure(failed: list[Request]) -> str:
    failure = failed[0].failure
    return "" if failure is None else f"{failed[0].request_id}, {failure.kind}: {failure.detail}"


def engine_died(window: Window) -> Contradiction | None:
    """The engine outlived the measurement; a death of unknown time counts against it."""
    end = window.measured.engine_end
    if end is None or end.ending != "died" or _outlived(window, end):
        return None
    return Contradiction(
        kind="engine_died",
        reason=f"The engine {window.measured.arm.engine} died while it was measured.",
        evidence=f"Exit code {'unknown' if end.exit_code is None else end.exit_code}"
        f"{f': {end.detail}' if end.detail else '.'}",
        remedy="Read the engine's log, fix the cause and measure again.",
    )


def _outlived(window: Window, end: EngineEnd) -> bool:
    """Whether the end was noticed after the last thing that was measured."""
    stamps = [each.stamps.closed_ns or each.stamps.sent_ns for each in window.everything]
    known = [each for each in stamps if each is not None]
    after = window.measured.after
    last = max([*known, *([after.at_ns] if after is not None else [])], default=None)
    return end.at_ns is not None and last is not None and end.at_ns > last


def restarted(window: Window) -> Contradiction | None:
    """No counter fell and the server's start did not change."""
    if window.delta.restarted is None:
        return None
    return Contradiction(
        kind="restart",
        reason="The server restarted inside the measured window.",
        evidence=f"Between the two readings of its counters, {window.delta.restarted}.",
        remedy="Find out who restarts the server and measure again.",
    )


def wrong_answerer(window: Window) -> Contradiction | None:
    """Every turn was answered by the model that this engine serves, by its own word."""
    engine = window.measured.engine
    said = Counter(_answered(each) for each in window.completed)
    said.pop(None, None)
    wanted = {engine.served_model} if engine is not None else set(list(said)[:1])
    strangers = {name: n for name, n in said.items() if name not in wanted}
    if not strangers:
        return None
    named = ", ".join(f"{name!r} ({some(n, len(window.turns))})" for name, n in strangers.items())
    return Contradiction(
        kind="wrong_answerer",
        reason="Another model answered than the one that is measured.",
        evidence=f"Expected {', '.join(repr(each) for each in wanted)}, answered by {named}.",
        remedy="Check the address: another server, a gateway or a failover may stand behind it.",
    )


def _answered(turn: Request) -> str | None:
    return turn.answered_by.model


def several_servers(window: Window) -> Contradiction | None:
    """One boot of one server answered all turns, and no answer was joined from two."""
    prints = {each.answered_by.system_fingerprint for each in window.completed} - {None}
    boots = {each.boot_id for each in window.turns} - {None, window.measured.arm.boot_id}
    spliced = [each for each in window.completed if _is_spliced(each)]
    seen = (
        f"system fingerprints {', '.join(sorted(map(str, prints)))}" if len(prints) > 1 else "",
        f"turns of other boots {', '.join(sorted(map(str, boots)))}" if boots else "",
        f"{some(len(spliced), len(window.turns))} changed answerer in mid-stream"
        if spliced
        else "",
    )
    if not any(seen):
        return None
    return Contradiction(
        kind="several_servers",
        reason="More than one server answered.",
        evidence=f"Seen: {'; '.join(each for each in seen if each)}.",
        remedy="Measure one server by its own address, without gateway or failover.",
    )


def _is_spliced(turn: Request) -> bool:
    return any(each.startswith(SPLICED) for each in turn.warnings)


def streams_differ(window: Window) -> Contradiction | None:
    """No two requests overlapped where one stream is declared; of several, see ``load``."""
    declared = window.denominator.streams or 0
    most = _most_in_flight(window)
    is_single = declared == 1 and window.denominator.arrival == "closed"
    if most is None or not is_single or most == declared:
        return None
    return Contradiction(
        kind="streams",
        reason=f"{counted(declared, 'stream')} declared, {most} at once measured.",
        evidence=f"At most {counted(most, 'request')} of this measurement overlapped in time.",
        remedy="Send as many requests at once as the denominator declares.",
    )


def _most_in_flight(window: Window) -> int | None:
    """The most requests at once while a turn of this arm ran; ``None`` if no time is known."""
    turns = [span for each in window.turns if (span := _span(each)) is not None]
    spans = [span for each in window.everything if (span := _span(each)) is not None]
    starts = [start for start, _ in spans]
    moments = [at for at in starts if any(start <= at < end for start, end in turns)]
    return max((sum(start <= at < end for start, end in spans) for at in moments), default=None)


def _span(request: Request) -> tuple[int, int] | None:
    stamps = request.stamps
    end_ns = stamps.last_token_ns or stamps.closed_ns
    if stamps.sent_ns is None or end_ns is None:
        return None
    return stamps.sent_ns, end_ns


def again(window: Window) -> Finding | None:
    """That the first attempt was disturbed."""
    start = window.measured.measurement
    if start.attempt == 1 or start.stage == "confirm":
        return None
    return Finding(
        kind="again",
        text="Measured again on the same boot, since the machine was disturbed the first time; "
        "the evidence has every attempt.",
    )


def doubted(window: Window) -> Finding | None:
    """What the client found odd about streams that nevertheless ended."""
    warnings = [
        warning
        for each in window.completed
        for warning in dict.fromkeys(each.warnings)
        if not warning.startswith(SPLICED)
    ]
    if not warnings:
        return None
    found = Counter(warning.partition(":")[0] for warning in warnings)
    heads = "; ".join(f"{head}: {some(n, len(window.turns))}" for head, n in sorted(found.items()))
    return Finding(kind="doubts", text=f"Odd streams: {heads}. The first: {warnings[0]}.")


def engine_unproven(window: Window) -> Contradiction | None:
    """A cache or a drafter that is declared is that of an engine which is recorded."""
    declared = window.measured.arm.declared
    needs = "speculation" if declared.speculation is not None else None
    needs = "a cached prefix" if window.denominator.prefix == "warm" else needs
    if window.measured.engine is not None or needs is None:
        return None
    return Contradiction(
        kind="engine_unproven",
        reason=f"The engine is not recorded, and {needs} is declared of it.",
        evidence=f"There is no engine record of boot {window.measured.arm.boot_id}: which build, "
        "cache and drafter answered is unknown.",
        remedy="Record the engine beside the measurement, or measure with the llmperf fixture.",
    )


def engine_unrecorded(window: Window) -> Finding | None:
    """Whether there is a record of the engine at all, where nothing is declared that needs one."""
    if window.measured.engine is not None or engine_unproven(window) is not None:
        return None
    boot = window.measured.arm.boot_id
    return Finding(
        kind="engine_unrecorded", text=f"The engine of boot {boot} is not recorded: who is unknown."
    )
