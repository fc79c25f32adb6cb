"""Whether a switch was a failover under load, and whether those who answered are who we think.

A server is known by its process: the address that its name was pinned to, its boot, when it says
that it started, its fingerprint, and its own count of what it finished. The model's name is never
asked: every server of an order may serve the same one. Figures are in ``switch``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations
from statistics import median

from pytest_llmperf import record
from pytest_llmperf.analysis.handover.switch import Switch
from pytest_llmperf.counters import difference
from pytest_llmperf.evidence import Measured
from pytest_llmperf.proof import Contradiction
from pytest_llmperf.units import counted, percent, seconds

IN_THE_PIPE_NS = 500_000_000
"""How long after the fault tokens of the first server may still be read: they were on their way."""

CONNECT_SHARE = 0.10
"""Looking up and connecting above this share of the time to first token is told."""

_AGAIN = "Measure again."


def contradictions(switch: Switch, fault: str) -> tuple[Contradiction, ...]:
    """Why this is no failover under load; empty where it is one."""
    rules: tuple[Callable[[Switch], Contradiction | None], ...] = (
        _not_completed,
        _same_server,
        lambda each: _no_fault(each, fault),
        _not_under_load,
        _failed_before,
        _went_on,
        _restarted,
        _several_processes,
        _miscounted,
    )
    return tuple(found for rule in rules if (found := rule(switch)) is not None)


def findings(switch: Switch) -> tuple[str, ...]:
    """What a reader should know."""
    return tuple(
        text
        for notice in (_slow_names, _unproven, _finished_unheard, _spliced)
        for text in notice(switch)
    )


def _not_completed(switch: Switch) -> Contradiction | None:
    end = switch.first.end
    if end is not None and end.completed:
        return None
    return Contradiction(
        kind="not_completed",
        reason="The failover was not carried out.",
        evidence="It was cut short." if end is None or not end.reason else f"{end.reason}.",
        remedy=_AGAIN,
    )


def _same_server(switch: Switch) -> Contradiction | None:
    """Two endpoints must not be one process, whatever their addresses say."""
    for one, other in combinations(switch.arms, 2):
        alike = _alike(one, other)
        if alike is not None:
            return Contradiction(
                kind="same_server",
                reason="Two servers of the order are one and the same.",
                evidence=f"{one.arm.engine} and {other.arm.engine} {alike}.",
                remedy="Name servers that are processes of their own, with no gateway before them.",
            )
    return None


def _alike(one: Measured, other: Measured) -> str | None:
    pids = [each.engine.pid for each in (one, other) if each.engine is not None]
    if one.arm.boot_id == other.arm.boot_id or (len(pids) == 2 and pids[0] and pids[0] == pids[1]):  # noqa: PLR2004 - both
        return "are one boot"
    places = [_address(each) for each in (one, other)]
    if places[0] is not None and places[0] == places[1]:
        return f"both answer at {places[0]}"
    starts = [each.before.started_at for each in (one, other) if each.before is not None]
    if len(starts) == 2 and starts[0] is not None and starts[0] == starts[1] and not all(pids):  # noqa: PLR2004 - both
        return f"say that their process started at the same moment ({starts[0]:.2f})"
    return None


def _address(arm: Measured) -> str | None:
    if arm.endpoint is None or arm.endpoint.pinned is None:
        return None
    return f"{arm.endpoint.pinned} port {arm.endpoint.url.rpartition(':')[2]}"


def _no_fault(switch: Switch, wanted: str) -> Contradiction | None:
    fault = switch.fault
    if fault is not None and fault.kind == wanted:
        return None
    return Contradiction(
        kind="no_fault",
        reason=f"The first server was not {wanted}.",
        evidence="No fault is recorded." if fault is None else f"It was {fault.kind}.",
        remedy="Measure with the fault that the marker declares.",
    )


def _not_under_load(switch: Switch) -> Contradiction | None:
    """At the fault every stream was in the middle of an answer, or at least one."""
    fault = switch.fault
    if fault is None or any(_is_cut(each, fault.begun_ns) for each in _of_first(switch)):
        return None
    return Contradiction(
        kind="not_under_load",
        reason="No answer was under way when the first server failed.",
        evidence=f"{counted(len(_of_first(switch)), 'attempt')} on it, none with tokens before "
        "the fault and its end after it.",
        remedy="Let the workload ask for longer answers, so that tokens flow at the fault.",
    )


def _is_cut(attempt: record.Request, at_ns: int) -> bool:
    began = any(chunk.at_ns < at_ns for chunk in attempt.chunks)
    return began and (attempt.stamps.closed_ns or at_ns) > at_ns


def _failed_before(switch: Switch) -> Contradiction | None:
    """Nothing failed before the fault: else it is not the fault whose effect is measured."""
    fault = switch.fault
    failed = [
        each
        for each in switch.attempts
        if each.failure is not None
        and fault is not None
        and (each.stamps.closed_ns or 0) < fault.begun_ns
    ]
    if not failed or failed[0].failure is None:
        return None
    failure = failed[0].failure
    return Contradiction(
        kind="failed_before",
        reason="Requests failed before the fault was planted.",
        evidence=f"{counted(len(failed), 'attempt')}; the first: {failure.kind}: {failure.detail}.",
        remedy="Make the servers sound before one of them is made to fail.",
    )


def _went_on(switch: Switch) -> Contradiction | None:
    """A server that is killed or frozen says nothing more, until it is thawed."""
    fault, thaw = switch.fault, switch.thaw
    if fault is None:
        return None
    until = thaw.begun_ns if thaw is not None else None
    late = [
        chunk.at_ns
        for each in _of_first(switch)
        for chunk in each.chunks
        if chunk.at_ns > fault.at_ns + IN_THE_PIPE_NS and (until is None or chunk.at_ns < until)
    ]
    if not late:
        return None
    after_s = (max(late) - fault.at_ns) / 1e9
    return Contradiction(
        kind="went_on",
        reason=f"The first server went on after it was {fault.kind}.",
        evidence=f"{counted(len(late), 'chunk')} of it came up to {seconds(after_s)} later.",
        remedy="Find out who answers at its address: a gateway, or a process that was not reached.",
    )


def _of_first(switch: Switch) -> list[record.Request]:
    return [each for each in switch.attempts if each.boot_id == switch.first.arm.boot_id]


def _restarted(switch: Switch) -> Contradiction | None:
    """Those who took over were up all the time."""
    for arm in switch.others:
        restarted = difference(arm.before, arm.after).restarted
        if restarted is not None:
            return Contradiction(
                kind="restart",
                reason=f"{arm.arm.engine}, which should take over, restarted meanwhile.",
                evidence=f"{restarted[0].upper()}{restarted[1:]}.",
                remedy="Read its log, fix the cause and measure again.",
            )
    return None


def _several_processes(switch: Switch) -> Contradiction | None:
    """Behind each address one process answered, by its fingerprint."""
    for arm in switch.arms:
        prints = {each.answered_by.system_fingerprint for each in arm.turns} - {None}
        if len(prints) > 1:
            listed = ", ".join(sorted(map(str, prints)))
            return Contradiction(
                kind="several_servers",
                reason=f"More than one server answered as {arm.arm.engine}.",
                evidence=f"System fingerprints {listed}.",
                remedy="Name each server by its own address, without a gateway.",
            )
    return None


def _miscounted(switch: Switch) -> Contradiction | None:
    """Each next server counted exactly what we had of it: so it was that server who answered."""
    for arm in switch.others:
        finished = difference(arm.before, arm.after).requests_finished
        sent = [each for each in arm.turns if each.stamps.sent_ns is not None]
        whole = sum(each.completed for each in sent)
        if finished is not None and not whole <= finished <= len(sent):
            return Contradiction(
                kind="miscounted",
                reason=f"What we had of {arm.arm.engine} is not what it says that it answered.",
                evidence=f"It counted {finished:,.0f} finished requests; "
                f"{counted(len(sent), 'request')} went to its address and {whole} were answered.",
                remedy="Find out who answers at that address, and who else asks there.",
            )
    return None


def _slow_names(switch: Switch) -> Iterator[str]:
    """Looking up and connecting that take a good part of the wait for a first token."""
    for arm in switch.arms:
        endpoint = arm.endpoint
        waits = [
            each.stamps.first_token_ns - each.stamps.sent_ns
            for each in arm.turns
            if each.stamps.first_token_ns is not None and each.stamps.sent_ns is not None
        ]
        if endpoint is None or not waits:
            continue
        asked = [("looking up its name", endpoint.lookup_ns), ("connecting", endpoint.connect_ns)]
        for doing, took in asked:
            if took is not None and took > CONNECT_SHARE * median(waits):
                yield (
                    f"{arm.arm.engine}: {doing} took {seconds(took / 1e9)}, "
                    f"{percent(took / median(waits))} of the median time to its first token; "
                    "it was done once, before the load."
                )


def _unproven(switch: Switch) -> Iterator[str]:
    for arm in switch.others:
        if difference(arm.before, arm.after).requests_finished is None:
            yield (
                f"{arm.arm.engine}: its counters cannot be read; that it answered rests on its "
                "address alone."
            )


def _finished_unheard(switch: Switch) -> Iterator[str]:
    """What a thawed server finished although nobody waited for it any more."""
    finished = difference(switch.first.before, switch.first.after).requests_finished
    whole = sum(each.completed for each in _of_first(switch))
    if finished is not None and finished > whole:
        yield (
            f"{switch.first.arm.engine} counted {finished:,.0f} finished requests and gave "
            f"{whole} whole answers: the others it gave up, or finished for nobody."
        )


def _spliced(switch: Switch) -> Iterator[str]:
    if switch.spliced:
        yield (
            f"{counted(len(switch.spliced), 'answer')} changed answerer in mid-stream: a failover "
            "that somebody else made, left out of every silence."
        )
