"""What a test asserts of a failover: how long it was silent, and that nothing was lost.

The figures are in ``handover``. A switch is one event: its streams fail together, so that none of
them is a replicate, and what is said holds for the switches that were seen.
"""

from __future__ import annotations

import msgspec

from pytest_llmperf.analysis.handover import Handover, Switch
from pytest_llmperf.assertions import check_limit, conclude, gate_name, only_records, wants_run
from pytest_llmperf.budget import Budget
from pytest_llmperf.claims.seen import Limit
from pytest_llmperf.errors import UsageError
from pytest_llmperf.proof import machine_line
from pytest_llmperf.report import Row
from pytest_llmperf.units import counted, seconds
from pytest_llmperf.verdict import (
    Verdict,
    Word,
    certain,
    claim_text,
    judge,
    undecided,
    unjudged,
)


def assert_failover(
    run: Handover, *, within_s: Limit | None = None, lost: int = 0
) -> list[Verdict]:
    """Assert that the next server took over in time, and that no more was lost than allowed.

    :param within_s: the longest silence of any stream, from the last good token of the first
        server to the first token of the next one: a number, or ``budget(name)``.
    :param lost: how many asks may end without an answer of any server.
    :returns: one verdict for each claim.
    :raises Regression: a stream was silent for longer, never heard again, or too much was lost.
    :raises InvalidMeasurement: it was no failover under load, or who answered is not proven.
    :raises UsageError: the run is no handover, or a limit is none.
    """
    wants_run(run, Handover)
    if within_s is not None:
        check_limit(within_s)
    if isinstance(lost, bool) or not isinstance(lost, int) or lost < 0:
        raise UsageError(
            f"lost={lost!r} is no number of requests.",
            "It says how many asks may end without an answer.",
            "Give 0 or more.",
        )
    if only_records(run.gate):
        return []
    rows = [] if within_s is None else [_row(run, _silent(run, within_s), run.worst_s)]
    rows.append(_row(run, _lost(run, lost), float(run.lost)))
    rows[-1] = msgspec.structs.replace(rows[-1], findings=run.findings)  # told once, not twice
    return conclude(run.gate, rows)


def _scope(run: Handover) -> str:
    return "this switch only" if len(run.switches) == 1 else f"these {len(run.switches)} switches"


def _silent(run: Handover, within_s: Limit) -> Verdict:
    limit = within_s.limit if isinstance(within_s, Budget) else float(within_s)
    what = "silence of the worst stream"
    scope = _scope(run)
    if limit is None:
        missing = within_s.missing if isinstance(within_s, Budget) else ""
        return unjudged(missing, claim=what, scope=scope)
    claim = claim_text(what, "at most", limit, "s")
    if (early := _early(run, claim)) is not None:
        return early
    worst = run.worst_s
    if worst is None:
        streams = [each.stream for each in run.newest.silences if each.gap_s is None]
        reason = (
            f"{counted(len(streams), 'stream')} of {len(run.newest.silences)} never had a token "
            "of the next server"
        )
        return certain("REGRESS", reason, claim=claim, scope=scope, unit="s")
    word: Word = "PASS" if worst <= limit else "REGRESS"
    reason = f"the worst stream was silent for {seconds(worst)}, and may be for {seconds(limit)}"
    return certain(word, reason, claim=claim, scope=scope, unit="s")


def _lost(run: Handover, allowed: int) -> Verdict:
    claim = f"at most {allowed} of {counted(run.asked, 'ask')} lost"
    if (early := _early(run, claim)) is not None:
        return early
    word: Word = "PASS" if run.lost <= allowed else "REGRESS"
    reason = f"{run.lost} of {counted(run.asked, 'ask')} had no answer of any server"
    first = next((ask for each in run.switches for ask in each.lost), None)
    if first is not None and first.attempts[-1].failure is not None:
        failure = first.attempts[-1].failure
        reason += f"; the first, {first.name}, at last by {failure.kind}: {failure.detail}"
    return certain(word, reason, claim=claim, scope=_scope(run), unit="asks")


def _early(run: Handover, claim: str) -> Verdict | None:
    """INVALID, or INCONCLUSIVE for rounds that did not run; ``None`` where it can be judged."""
    scope = _scope(run)
    if run.contradictions:
        return judge(None, run.contradictions, claim=claim, scope=scope, unit="s")
    planned = run.gate.planned_rounds if run.gate else 1
    if len(run.switches) < planned:
        reason = f"{len(run.switches)} of {planned} planned switches were measured"
        return undecided(reason, "all rounds of this test", claim=claim, scope=scope)
    return None


def _row(run: Handover, verdict: Verdict, number: float | None) -> Row:
    is_valid = not run.contradictions
    return Row(
        gate=gate_name(run.gate),
        verdict=verdict,
        denominator=run.denominator,
        estimate=number if is_valid else None,
        arms=" then ".join(each.arm.engine for each in run.newest.arms),
        evidence=_who(run.newest),
        beside=_beside(run.newest) if is_valid else (),
    )


def _who(switch: Switch) -> str:
    """Who answered how many asks, each known by its process, and on what machine."""
    told = []
    for arm in switch.arms:
        identity = [
            f"at {arm.endpoint.pinned}:{arm.endpoint.url.rpartition(':')[2]}"
            if arm.endpoint is not None and arm.endpoint.pinned is not None
            else "",
            f"process {arm.engine.pid}" if arm.engine is not None and arm.engine.pid else "",
            f"started at {arm.before.started_at:.2f}"
            if arm.before is not None and arm.before.started_at is not None
            else "",
        ]
        known = ", ".join(each for each in identity if each)
        told.append(f"{arm.arm.engine} ({known}) answered {switch.who[arm.arm.boot_id]}")
    machine = machine_line(switch.first)
    return "; ".join([*told, machine] if machine else told)


def _beside(switch: Switch) -> tuple[tuple[str, str], ...]:
    """The newest switch otherwise: as each caller heard it, and as the service looks."""
    gaps = ", ".join(seconds(each) for each in switch.gaps_s)
    return (
        (f"each stream's silence (the caller's view, {len(switch.gaps_s)} streams)", gaps),
        (
            "last token of any stream to first of any (the service's view)",
            seconds(switch.overall.gap_s),
        ),
        ("asks lost / sent again / answered twice", _counts(switch)),
        ("tokens of broken attempts, kept in evidence", f"{switch.tokens_kept:,}"),
    )


def _counts(switch: Switch) -> str:
    counts = (len(switch.lost), len(switch.sent_again), len(switch.twice))
    return f"{' / '.join(map(str, counts))} of {counted(len(switch.asks), 'ask')}"
