"""What a test asserts of a measurement, by statistics: latency, throughput, speed-up.

The tests are in ``assumption``, the words in ``verdict``. Outside pytest the assertions work the
same: they return verdicts, and raise ``Regression`` or ``InvalidMeasurement``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp, inf, log
from statistics import fmean

import msgspec

from pytest_llmperf import assumption, attribution
from pytest_llmperf.analysis.beside import numbers_beside, ratios_beside
from pytest_llmperf.analysis.predictability import ByClass
from pytest_llmperf.assumption.borrow import ratio_against_borrowing
from pytest_llmperf.assumption.screen import FEWEST_SESSIONS
from pytest_llmperf.budget import Budget
from pytest_llmperf.denominator import Denominator
from pytest_llmperf.errors import InvalidMeasurement, LlmperfError, Regression, UsageError
from pytest_llmperf.gate import Gate
from pytest_llmperf.report import Row
from pytest_llmperf.run import Pair, Run
from pytest_llmperf.tails import kept
from pytest_llmperf.units import counted, quantile_name
from pytest_llmperf.verdict import Verdict, claim_text, failure_parts, judge, undecided, unjudged

Limit = float | Budget | None

_BUILD = "this build"
_FEW = "this boot only"
_ARMS = 2
_FEW_PAIRS = "this pair of boots only"


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
    wants_run(run, Run)
    limits = {0.5: p50_s, 0.9: p90_s, 0.95: p95_s, 0.99: p99_s}
    _wants_unit(run.denominator, "request", "assert_throughput")
    return _against(run, {p: limit for p, limit in limits.items() if limit is not None}, "at most")


def assert_throughput(run: Run, *, at_least_tps: float | Budget) -> list[Verdict]:
    """Assert that the median turn's throughput reaches a floor, in tokens per second.

    Of all streams together, the median window's.

    :returns: the verdict, as a list of one.
    :raises Regression: it does not reach the floor.
    :raises InvalidMeasurement: the run did not measure what it declares.
    :raises UsageError: the denominator counts seconds.
    """
    wants_run(run, Run)
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
    wants_run(pair, Pair)
    check_limit(at_least)
    if only_records(pair.candidate.gate):
        return []
    return conclude(pair.candidate.gate, [ratio_row(pair, at_least)])


def assert_speedup_by_class(
    classes: ByClass, *, at_least: float | Mapping[str, float]
) -> list[Verdict]:
    """Assert the least speed-up of each class of output; the verdict names the class.

    The chance of any false REGRESS is that of one claim: alpha is divided by the classes.

    :param at_least: a floor for each class by name, or one for all.
    :returns: a verdict for each class.
    :raises Regression: one of them is below its floor.
    :raises InvalidMeasurement: an arm of one of them did not measure what it declares.
    :raises UsageError: floors and classes are not the same.
    """
    wants_run(classes, ByClass)
    floors = classes.floors(at_least)
    for floor in floors.values():
        check_limit(floor)
    (gate, *_) = (pair.candidate.gate for pair in classes.pairs.values())
    if only_records(gate):
        return []
    rows = [
        ratio_row(pair, floors[name], of_class=name, classes=len(floors))
        for name, pair in classes.pairs.items()
    ]
    beside = classes.table if all(row.verdict.word != "INVALID" for row in rows) else ()
    return conclude(gate, [msgspec.structs.replace(row, beside=beside) for row in rows])


def assert_no_regression(run: Run, *, p: float = 0.5) -> list[Verdict]:
    """Assert that a quantile of a run did not get worse than this gate's past.

    In gate mode history screens it; a suspect is judged on fresh boots of candidate and reference.
    In quick mode, and without a past, it is INCONCLUSIVE.

    :returns: the verdict, as a list of one; a gate that goes to fresh boots is INCONCLUSIVE here.
    :raises InvalidMeasurement: the run did not measure what it declares.
    :raises UsageError: the run was made outside a session, and has no past.
    """
    if only_records(run.gate):
        return []
    if run.gate is None or run.origin is None:
        raise UsageError(
            "This run has no past to be held against.",
            "It was not made by the llmperf fixture.",
            "Measure it in a test, with llmperf(engine, workload).",
        )
    if run.contradictions:
        claim = f"{quantile_name(p)} of {run.denominator.name} not worse than its past"
        verdict = judge(None, run.contradictions, claim=claim, scope=scope_of(run, _FEW), unit="x")
        row = Row(
            gate=gate_name(run.gate),
            verdict=verdict,
            denominator=run.denominator,
            evidence=run.evidence,
        )
        return conclude(run.gate, [row])
    source = run.origin.source
    rows = [source.against_the_past(run, run.gate, p), source.crept(run, run.gate, p)]
    return conclude(run.gate, [row for row in rows if row is not None])


def ratio_row(pair: Pair, at_least: float, *, of_class: str = "", classes: int = 1) -> Row:
    """Judge a speed-up against a floor; nothing is raised and no gate is told."""
    what = f"{pair.claimed} on {of_class}" if of_class else pair.claimed
    claim = claim_text(what, "at least", at_least, "x")
    boots = {run.measured.arm.boot_id for run in pair.runs}
    scope = scope_of(pair.candidate, _FEW if len(boots) == 1 else _FEW_PAIRS)
    objections = pair.contradictions
    reason = _no_ratio(pair)
    if reason is not None and not objections:
        verdict = undecided(*reason, claim=claim, scope=scope)
    else:
        comparison = None if objections else _ratio(pair, at_least, classes)
        verdict = judge(comparison, objections, claim=claim, scope=scope, unit="x")
        if len(pair.runs) == _ARMS and at_least >= 1:
            arms = (run.recounted(pair.of) for run in pair.runs)
            verdict = kept(verdict, *arms, tolerance=pair.candidate.levels.tolerance)
    return Row(
        gate=gate_name(pair.candidate.gate),
        verdict=verdict,
        denominator=pair.of,
        arms=pair.arms,
        estimate=None if objections else pair.ratio(),
        evidence=pair.evidence,
        beside=() if objections else pair.table or ratios_beside(pair),
        findings=(*_conditions(pair), *pair.findings),
        where=attribution.where_lines([run.boots for run in pair.runs]),
    )


def _conditions(pair: Pair) -> tuple[str, ...]:
    """A gain by speculation is never told without what it depends on."""
    if "speculation" not in pair.factor:
        return ()
    return (f"At {attribution.conditions(pair.candidate.measured)}.",)


def _ratio(pair: Pair, floor: float, claims: int = 1) -> assumption.Comparison:
    """Blocks are the replicates of one boot's ratio; boots are the replicates of a build's."""
    levels = pair.candidate.levels
    levels = msgspec.structs.replace(levels, alpha=levels.alpha / claims)
    per_boot = pair.log_ratios()
    if len(per_boot) == 1:
        return assumption.ratio_against(
            per_boot[0], floor=floor, alpha=levels.alpha, beta=levels.beta
        )
    means = [fmean(logs) for logs in per_boot]
    past = _past_ratios(pair) if len(means) >= assumption.BOOTS else ()
    if len(past) >= FEWEST_SESSIONS:
        return ratio_against_borrowing(
            means, past, floor=floor, alpha=levels.alpha, beta=levels.beta
        )
    return assumption.ratio_against(
        means, floor=floor, alpha=levels.alpha, beta=levels.beta, replicate="boot"
    )


def _past_ratios(pair: Pair) -> Sequence[Sequence[float]]:
    """What history knows of this ratio's scatter over boots, for its spread and not its mean."""
    run = pair.candidate
    if len(pair.runs) != _ARMS or run.gate is None or run.origin is None:
        return ()
    if pair.of.clock != run.denominator.clock:
        return ()
    found: Sequence[Sequence[float]] = run.origin.source.past_ratios(pair, run.gate)
    return found


def _no_ratio(pair: Pair) -> tuple[str, str] | None:
    """Why the ratio's test cannot be made, and what would make it."""
    if not pair.is_interleaved:
        return (
            "the two engines were not up together, so their turns did not alternate",
            "a profile with resident = 2",
        )
    return too_few_boots(pair.candidate)


def too_few_boots(run: Run) -> tuple[str, str] | None:
    """Why these boots cannot speak for a build, and what could; ``None`` where they can."""
    planned, ran = (run.gate.planned_rounds if run.gate else 1), len(run.boots)
    if ran < planned:
        return f"{ran} of {planned} planned boots were measured", "all rounds of this test"
    if run.distinct_boots < ran:
        boots = counted(run.distinct_boots, "boot")
        return (
            f"{ran} rounds were measured on {boots}, and only boots are replicates",
            "a fresh boot for each round; a server that is attached is not rebooted",
        )
    if 1 < ran < assumption.BOOTS:
        return (
            f"{ran} boots are too few for a claim about a build",
            f"{assumption.BOOTS} boots or more",
        )
    return None


def scope_of(run: Run, few: str) -> str:
    """How far a claim about a run holds; ``few`` names it for one boot."""
    return few if run.distinct_boots == 1 else _BUILD


def only_records(gate: Gate | None) -> bool:
    """Note that an assertion was reached; in all rounds but the last it judges nothing."""
    if gate is None:
        return False
    gate.has_asserted = True
    return gate.is_recording


def _against(
    run: Run, limits: dict[float, float | Budget], relation: assumption.Relation
) -> list[Verdict]:
    if not limits:
        raise UsageError(
            "The assertion states no limit.",
            f"It was given a run of {run.denominator.name} and nothing to hold it against.",
            "Give a limit, as p50_s=0.25 or p50_s=budget('cached_turn.p50').",
        )
    for limit in limits.values():
        check_limit(limit)
    if only_records(run.gate):
        return []
    run = _sharing(run, len(limits))
    return conclude(
        run.gate, [quantile_row(run, p, limit, relation) for p, limit in limits.items()]
    )


def _sharing(run: Run, claims: int) -> Run:
    """The same run, its alpha divided over the limits that one assertion states."""
    levels = msgspec.structs.replace(run.levels, alpha=run.levels.alpha / claims)
    return run.at(levels)


def check_limit(limit: object) -> None:
    """:raises UsageError: it is no finite number above 0, and no budget."""
    is_number = isinstance(limit, int | float) and not isinstance(limit, bool)
    if isinstance(limit, Budget) or (is_number and 0 < limit < inf):  # type: ignore[operator]  # a number, as just seen
        return
    raise UsageError(
        f"{limit!r} is no limit.",
        "A limit is a finite number above 0, or budget(name).",
        "Give seconds for a latency, tokens per second for a throughput.",
    )


def quantile_row(run: Run, p: float, limit: float | Budget, relation: assumption.Relation) -> Row:
    """Judge a quantile against a limit; nothing is raised and no gate is told."""
    number = limit.limit if isinstance(limit, Budget) else float(limit)
    objections = run.contradictions
    missing = limit.missing if isinstance(limit, Budget) else ""
    return Row(
        gate=gate_name(run.gate),
        verdict=_quantile_verdict(run, p, number, relation, missing),
        denominator=run.denominator,
        estimate=None if objections else _typical(run, p),
        evidence=run.evidence,
        beside=() if objections else numbers_beside(run),
        findings=run.findings,
        where=attribution.where_lines([run.boots]),
    )


def _quantile_verdict(
    run: Run, p: float, limit: float | None, relation: assumption.Relation, missing: str
) -> Verdict:
    what, unit = f"{quantile_name(p)} of {run.denominator.name}", run.denominator.unit_text
    scope = scope_of(run, _FEW)
    claim = what if limit is None else claim_text(what, relation, limit, unit)
    if run.contradictions:
        return judge(None, run.contradictions, claim=claim, scope=scope, unit=unit)
    if limit is None:
        return unjudged(missing, claim=claim, scope=scope, unit=unit)
    reason = too_few_boots(run)
    if reason is not None:
        return undecided(*reason, claim=claim, scope=scope)
    return judge(_quantile(run, p, limit, relation), (), claim=claim, scope=scope, unit=unit)


def _quantile(
    run: Run, p: float, limit: float, relation: assumption.Relation
) -> assumption.Comparison:
    levels = run.levels
    if len(run.boots) == 1 and run.windows:
        return assumption.quantile_against_over_boots(
            run.windows,
            p=p,
            limit=limit,
            alpha=levels.alpha,
            beta=levels.beta,
            relation=relation,
            replicate="window",
        )
    if len(run.boots) == 1:
        return assumption.quantile_against(
            run.values[0],
            p=p,
            limit=limit,
            alpha=levels.alpha,
            beta=levels.beta,
            relation=relation,
        )
    return assumption.quantile_against_over_boots(
        run.values, p=p, limit=limit, alpha=levels.alpha, beta=levels.beta, relation=relation
    )


def _typical(run: Run, p: float) -> float:
    """The quantile of a typical boot: the geometric mean over boots."""
    return exp(fmean(log(assumption.quantile(boot, p)) for boot in run.values))


def conclude(gate: Gate | None, rows: Sequence[Row]) -> list[Verdict]:
    """Leave the rows with the gate, then raise for the worst of them."""
    if gate is not None:
        for row in rows:
            gate.add(row)
    for word, error in (("INVALID", InvalidMeasurement), ("REGRESS", Regression)):
        for row in rows:
            if row.verdict.word == word:
                raise _error(error, row)
    return [row.verdict for row in rows]


def error_of(row: Row) -> LlmperfError | None:
    """Give the error that a red or invalid row raises; ``None`` for any other."""
    kinds = {"INVALID": InvalidMeasurement, "REGRESS": Regression}
    kind = kinds.get(row.verdict.word or "")
    return None if kind is None else _error(kind, row)


def _error(kind: type[LlmperfError], row: Row) -> LlmperfError:
    return kind(*failure_parts(row.verdict, row.denominator, row.evidence, row.beside))


def wants_run(given: object, kind: type) -> None:
    """:raises UsageError: it is not of the kind that the assertion judges."""
    if not isinstance(given, kind):
        raise UsageError(
            f"{given!r} is not what this assertion judges.",
            f"It is a {type(given).__name__}, not a {kind.__name__}.",
            "Give what llmperf(...) handed back, or llmperf.compare(...) for a speed-up.",
        )


def _wants_unit(denominator: Denominator, unit: str, other: str) -> None:
    if denominator.unit != unit:
        counted_so = "single_stream" if unit == "request" else "decode_throughput"
        raise UsageError(
            f"This assertion does not fit the denominator {denominator.name}.",
            f"It counts {denominator.words}: {denominator.formula}.",
            f"Use {other}, or count the run otherwise: run.under({counted_so!r}).",
        )


def gate_name(gate: Gate | None) -> str:
    """The test's node id without the folders of its file; empty outside pytest."""
    return "" if gate is None else gate.node_id.rpartition("/")[2]
