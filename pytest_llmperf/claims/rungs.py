"""What a test asserts of a ladder: what more streams bring, and the rate that they reach.

Its rungs are in ``ladder`` and ``climb``; how one number a boot is judged is in ``seen``.
"""

from __future__ import annotations

import msgspec

from pytest_llmperf.analysis.climb import Climb, streams_of
from pytest_llmperf.assertions import check_limit, conclude, gate_name, only_records, wants_run
from pytest_llmperf.attribution import where
from pytest_llmperf.claims.seen import Claim, Limit, held
from pytest_llmperf.load import picture
from pytest_llmperf.load.burst import Bounded
from pytest_llmperf.report import Row
from pytest_llmperf.units import counted, quantity
from pytest_llmperf.verdict import Verdict, judge

_SCOPE = "this climb only"


def assert_ladder(
    climb: Climb, *, gain_at_least: Limit, at_least_tps: Limit | None = None
) -> list[Verdict]:
    """Assert what more streams bring: the best rung's throughput over that of the fewest streams.

    :param gain_at_least: how many times the throughput of the first rung the best one reaches.
    :param at_least_tps: output tokens per second of all streams together at the best rung.
    :returns: one verdict for each claim; INCONCLUSIVE ones do not raise.
    :raises Regression: the ladder gains less, or does not reach the floor.
    :raises InvalidMeasurement: a rung did not measure what it declares.
    :raises UsageError: it is no climb of a ladder.
    """
    wants_run(climb, Climb)
    floors = {"x": gain_at_least} | ({} if at_least_tps is None else {"tok/s": at_least_tps})
    for floor in floors.values():
        check_limit(floor)
    gate = climb.first[0].gate
    if only_records(gate):
        return []
    rows = [_row(climb, unit, floor) for unit, floor in floors.items()]
    if not climb.contradictions:
        drawn = picture.ladder_lines(climb.steps(), climb.knee)
        rows[-1] = msgspec.structs.replace(rows[-1], picture=drawn)
        title = "Output tokens per second by streams at once"
        climb.first[0].keep("ladder", picture.ladder_svg(climb.steps(), climb.knee, title))
    return conclude(gate, rows)


def _row(climb: Climb, unit: str, floor: Limit) -> Row:
    claim = _claim(climb, unit, floor)
    verdict, estimate = _judged(climb, claim)
    return Row(
        gate=gate_name(climb.first[0].gate),
        verdict=verdict,
        denominator=msgspec.structs.replace(climb.first[0].denominator, streams=None),
        estimate=estimate,
        evidence="" if climb.contradictions else _evidence(climb),
        findings=climb.findings,
        where=_where(climb),
    )


def _claim(climb: Climb, unit: str, floor: Limit) -> Claim:
    """Every claim of capacity names the streams that it is of."""
    fewest, most = climb.streams[0], climb.streams[-1]
    best = f"best throughput of {fewest} to {most} streams"
    what = f"{best} over that of {fewest}" if unit == "x" else best
    return Claim(what=what, relation="at least", limit=floor, unit=unit, scope=_SCOPE)


def _judged(climb: Climb, claim: Claim) -> tuple[Verdict, float | None]:
    if climb.contradictions:
        verdict = judge(
            None, climb.contradictions, claim=claim.words, scope=_SCOPE, unit=claim.unit
        )
        return verdict, None
    numbers = climb.gains() if claim.unit == "x" else climb.bests()
    found = [Bounded(at_s=each) for each in numbers]
    return held(claim, found, climb.first[0]), numbers[-1]


def _where(climb: Climb) -> tuple[str, ...]:
    """Where the time went at the fewest streams and at the best rung."""
    best, of = climb.best, {streams_of(run): run for run in climb.runs}
    told = dict.fromkeys([climb.streams[0], climb.streams[0] if best is None else best.streams])
    return tuple(f"at {counted(each, 'stream')}: {where(of[each].boots).text}" for each in told)


def _evidence(climb: Climb) -> str:
    """The best rung and the knee, each with its streams, and what proves the first rung."""
    best, knee = climb.best, climb.knee
    if best is None:
        return ""
    together = quantity(best.aggregate_tps, "tok/s")
    at = f"{together} together at {counted(best.streams, 'stream')}"
    each = f"{quantity(best.per_stream_tps, 'tok/s')} each"
    knee_at = "beyond the ladder" if knee is None else f"at {counted(knee.streams, 'stream')}"
    return f"{at}, {each}; knee (most throughput over latency) {knee_at}"
