"""What a test asserts of a measurement, by statistics: latency, throughput, speed-up.

The tests are in ``assumption``, the words in ``verdict``. Outside pytest the assertions work the
same: they return verdicts, and raise ``Regression`` or ``InvalidMeasurement``.
"""

from __future__ import annotations

from collections.abc import Sequence

from pytest_llmperf import assumption
from pytest_llmperf.budget import Budget
from pytest_llmperf.denominator import BUILT_IN, DECODE_THROUGHPUT, Denominator
from pytest_llmperf.errors import InvalidMeasurement, LlmperfError, Regression, UsageError
from pytest_llmperf.gate import Gate
from pytest_llmperf.report import Row
from pytest_llmperf.run import Pair, Run
from pytest_llmperf.sample import every_denominator
from pytest_llmperf.units import quantity
from pytest_llmperf.verdict import Verdict, claim_text, failure_parts, judge, undecided, unjudged

Limit = float | Budget | None

_ONE_BOOT = "this boot only"
_ONE_PAIR = "this pair of boots only"


def assert_latency(
    run: Run,
    *,
    p50_s: Limit = None,
    p90_s: Limit = None,
    p95_s: Limit = None,
    p99_s: Limit = None,
) -> list[Verdict]:
    """Assert that quantiles of a run's latency stay within limits, in seconds.

    Each limit is a number, or ``budget(name)``; a budget that this machine lacks is a row that is
    not judged.

    :returns: one verdict for each limit; INCONCLUSIVE ones do not raise.
    :raises Regression: a limit is exceeded.
    :raises InvalidMeasurement: the run did not measure what it declares.
    :raises UsageError: no limit is given, or the denominator counts tokens per second.
    """
    limits = {0.5: p50_s, 0.9: p90_s, 0.95: p95_s, 0.99: p99_s}
    _wants_unit(run.denominator, "request", "assert_throughput")
    return _against(run, {p: limit for p, limit in limits.items() if limit is not None}, "at most")


def assert_throughput(run: Run, *, at_least_tps: float | Budget) -> list[Verdict]:
    """Assert that the median turn's throughput reaches a floor, in tokens per second.

    :returns: the verdict, as a list of one.
    :raises Regression: it does not reach the floor.
    :raises InvalidMeasurement: the run did not measure what it declares.
    :raises UsageError: the denominator counts seconds.
    """
    _wants_unit(run.denominator, "output_token", "assert_latency")
    return _against(run, {0.5: at_least_tps}, "at least")


def assert_speedup(pair: Pair, *, at_least: float) -> list[Verdict]:
    """Assert that the candidate is at least so many times better than the reference.

    The replicate is the ABBA block. :math:`r = exp(mean_b(log ref_b - log cand_b))` for seconds,
    the inverse for tokens per second, so that more than 1 is better.

    :returns: the verdict, as a list of one.
    :raises Regression: the ratio is below the floor.
    :raises InvalidMeasurement: an arm did not measure what it declares.
    """
    of = pair.of
    candidate = pair.candidate
    claim = claim_text(f"speed-up of {of.name} by {pair.factor}", "at least", at_least, "x")
    objections = pair.contradictions
    comparison = None
    if not objections:
        levels = candidate.levels
        comparison = assumption.ratio_against(
            pair.log_ratios(), floor=at_least, alpha=levels.alpha, beta=levels.beta
        )
    scope = _ONE_BOOT if pair.factor == "prefix" else _ONE_PAIR
    verdict = judge(comparison, objections, claim=claim, scope=scope, unit="x")
    if not objections and not pair.is_interleaved:
        verdict = undecided(
            "the two engines were not up together, so their turns did not alternate",
            claim=claim,
            scope=scope,
            would_decide="a profile with resident = 2, or several alternating boots",
        )
    row = Row(
        gate=_gate_name(candidate.gate),
        verdict=verdict,
        denominator=of,
        arms=pair.arms,
        estimate=None if objections else pair.ratio(),
        evidence=pair.evidence,
        beside=() if objections else _ratios_beside(pair),
        findings=pair.findings,
    )
    return _conclude(candidate.gate, [row])


def _against(
    run: Run, limits: dict[float, float | Budget], relation: assumption.Relation
) -> list[Verdict]:
    if not limits:
        raise UsageError(
            "The assertion states no limit.",
            f"It was given a run of {run.denominator.name} and nothing to hold it against.",
            "Give a limit, as p50_s=0.25 or p50_s=budget('cached_turn.p50').",
        )
    return _conclude(run.gate, [_row(run, p, limit, relation) for p, limit in limits.items()])


def _row(run: Run, p: float, limit: float | Budget, relation: assumption.Relation) -> Row:
    number = limit.limit if isinstance(limit, Budget) else float(limit)
    estimate = None
    what = f"p{100 * p:.0f} of {run.denominator.name}"
    unit = run.denominator.unit_text
    if run.contradictions:
        claim = claim_text(what, relation, number, unit) if number is not None else what
        verdict = judge(None, run.contradictions, claim=claim, scope=_ONE_BOOT, unit=unit)
    elif number is None:
        estimate = assumption.quantile(run.values, p)
        reason = limit.missing if isinstance(limit, Budget) else ""
        verdict = unjudged(reason, claim=what, scope=_ONE_BOOT, unit=unit)
    else:
        levels = run.levels
        comparison = assumption.quantile_against(
            run.values, p=p, limit=number, alpha=levels.alpha, beta=levels.beta, relation=relation
        )
        claim = claim_text(what, relation, number, unit)
        verdict = judge(comparison, (), claim=claim, scope=_ONE_BOOT, unit=unit)
    return Row(
        gate=_gate_name(run.gate),
        verdict=verdict,
        denominator=run.denominator,
        estimate=estimate,
        evidence=run.evidence,
        beside=() if run.contradictions else _numbers_beside(run),
        findings=run.findings,
    )


def _conclude(gate: Gate | None, rows: Sequence[Row]) -> list[Verdict]:
    """Leave the rows with the gate, then raise for the worst of them."""
    if gate is not None:
        for row in rows:
            gate.add(row)
    for word, error in (("INVALID", InvalidMeasurement), ("REGRESS", Regression)):
        for row in rows:
            if row.verdict.word == word:
                raise _error(error, row)
    return [row.verdict for row in rows]


def _error(kind: type[LlmperfError], row: Row) -> LlmperfError:
    return kind(*failure_parts(row.verdict, row.denominator, row.evidence, row.beside))


def _numbers_beside(run: Run) -> tuple[tuple[str, str], ...]:
    """The same turns under every other denominator that they can be counted by."""
    return tuple(
        (each.label, quantity(each.median, each.unit))
        for each in every_denominator(run.measured.turns, run.measured.arm.declared.draft_tokens)
        if (each.clock, each.unit) != (run.denominator.clock, run.denominator.unit_text)
    )


def _ratios_beside(pair: Pair) -> tuple[tuple[str, str], ...]:
    """The same blocks' ratio under the other clocks, where every turn has a value."""
    found = []
    for clock, label in _OTHER_RATIOS.items():
        if clock.clock != pair.of.clock:
            ratio = pair.ratio(clock)
            found.append((label, quantity(ratio, "x")))
    return tuple(found)


_OTHER_RATIOS: dict[Denominator, str] = {
    BUILT_IN["single_stream"]: "whole turn, wall clock",
    BUILT_IN["time_to_first_token"]: "time to first token",
    DECODE_THROUGHPUT: "decode only",
}
"""The clocks whose ratios stand beside a gate's own."""


def _wants_unit(denominator: Denominator, unit: str, other: str) -> None:
    if denominator.unit != unit:
        raise UsageError(
            f"This assertion does not fit the denominator {denominator.name}.",
            f"It counts {denominator.words}: {denominator.formula}.",
            f"Use {other}, or count the run otherwise: run.under('single_stream').",
        )


def _gate_name(gate: Gate | None) -> str:
    return "" if gate is None else gate.node_id.rpartition("/")[2]
