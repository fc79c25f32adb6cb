"""What share of the hardware's limit decoding reaches: bandwidth over the bytes that a token needs.

The probe that measures bandwidth is in ``server``; what a decode step took, in ``sample``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from statistics import fmean

import msgspec

from pytest_llmperf import assumption, record
from pytest_llmperf.assertions import conclude, gate_name, only_records, scope_of, too_few_boots
from pytest_llmperf.attribution import where_lines
from pytest_llmperf.claims.ceiling import checkpoint
from pytest_llmperf.claims.ceiling.reached import Limit, contradictions, limit_of, log_shares
from pytest_llmperf.claims.ceiling.words import beside, findings
from pytest_llmperf.denominator import DECODE_THROUGHPUT
from pytest_llmperf.errors import UsageError
from pytest_llmperf.evidence import Measured
from pytest_llmperf.proof import Contradiction
from pytest_llmperf.report import Row
from pytest_llmperf.run import Pair, Run
from pytest_llmperf.server import bandwidth
from pytest_llmperf.verdict import Verdict, claim_text, judge, undecided

__all__ = ["Limit", "assert_ceiling", "limit_of", "memory_facts"]

_UNIT = "of the ceiling"


def assert_ceiling(measured: Run | Pair, *, at_least: float) -> list[Verdict]:
    """Assert that decoding without a drafter reaches a share of the machine's memory bandwidth.

    :math:`share = tps * bytes(token) / bandwidth`. The bandwidth is probed right after the turns,
    in the engine's Python; the bytes are the checkpoint's active weights, keys and values. Of a
    pair, the arm without a drafter is judged, and what the drafter buys stands beside it.

    :param at_least: a share, more than 0 and at most 1.
    :returns: the verdict, as a list of one.
    :raises Regression: decoding reaches less.
    :raises InvalidMeasurement: the turns, the bytes or the bandwidth are not what they must be.
    :raises UsageError: no arm is without a drafter, or the share is none.
    """
    plain, drafting = _arms(measured)
    _check_share(at_least)
    plain, drafting = _with_memory(plain, probe=True), drafting and _with_memory(drafting)
    if only_records(plain.gate):
        return []
    return conclude(plain.gate, [_row(plain, drafting, measured, at_least)])


def memory_facts(
    boot: Measured, *, probe: bool, tell: Callable[[str], None]
) -> Iterator[record.Weights | record.Bandwidth]:
    """What is not recorded yet of a boot's checkpoint and memory; probing takes some seconds."""
    if boot.engine is None:
        return
    if boot.weights is None:
        yield checkpoint.weights_of(boot.engine)
    if probe and boot.bandwidth is None:
        tell("probing the memory's bandwidth for some seconds")
        yield bandwidth.probe(boot.engine, boot.measurement.measurement_id)


def _arms(measured: object) -> tuple[Run, Run | None]:
    """The arm without a drafter, and the other one."""
    if not isinstance(measured, Run | Pair):
        raise UsageError(
            f"{measured!r} is not what this assertion judges.",
            f"It is a {type(measured).__name__}, neither a run nor a pair.",
            "Give what llmperf(...) or llmperf.compare(...) handed back.",
        )
    runs = [measured] if isinstance(measured, Run) else [measured.reference, measured.candidate]
    plain = [each for each in runs if each.measured.arm.declared.speculation is None]
    if not plain:
        engines = ", ".join(each.measured.arm.engine for each in runs)
        raise UsageError(
            "A ceiling of one token for each read of the weights needs an engine without drafter.",
            f"Measured: {engines}, all of them with one.",
            "Boot one with engine(name, speculation=False), or compare with and without.",
        )
    others = [each for each in runs if each is not plain[0]]
    return plain[0], others[0] if others else None


def _check_share(share: object) -> None:
    is_number = isinstance(share, int | float) and not isinstance(share, bool)
    if not is_number or not 0 < share <= 1:  # type: ignore[operator]  # a number, as just seen
        raise UsageError(
            f"{share!r} is no share of a ceiling.",
            "A share is more than 0 and at most 1.",
            "Give 0.3 for thirty percent.",
        )


def _with_memory(run: Run, *, probe: bool = False) -> Run:
    """The run's turns by the decode clock, its boots with what is known of their memory."""
    boots = run.boots
    if run.origin is not None:
        source = run.origin.source
        last = source.with_memory(boots[-1], probe=probe)
        boots = (*(source.with_memory(each, probe=False) for each in boots[:-1]), last)
    of = msgspec.structs.replace(
        DECODE_THROUGHPUT, prefix=run.denominator.prefix, streams=run.denominator.streams
    )
    return run.recounted(of, boots)


def _row(plain: Run, drafting: Run | None, measured: Run | Pair, floor: float) -> Row:
    objections = (
        *plain.contradictions,
        *(each for boot in plain.boots for each in contradictions(boot)),
        *(drafting.contradictions if drafting else ()),
    )
    objections = tuple(dict.fromkeys(objections))
    pair = measured if isinstance(measured, Pair) else None
    return Row(
        gate=gate_name(plain.gate),
        verdict=_verdict(plain, objections, floor),
        denominator=plain.denominator,
        arms=None if pair is None else f"{plain.measured.arm.engine} without drafter",
        evidence=plain.evidence,
        beside=() if objections else beside(plain, drafting, pair),
        findings=(*(() if objections else findings(plain)), *plain.findings),
        where=where_lines([plain.boots]),
    )


def _verdict(plain: Run, objections: tuple[Contradiction, ...], floor: float) -> Verdict:
    claim = claim_text("decoding reaches", "at least", floor, _UNIT)
    held = scope_of(plain, "this boot only")
    if objections:
        return judge(None, objections, claim=claim, scope=held, unit=_UNIT)
    reason = too_few_boots(plain)
    if reason is not None:
        return undecided(*reason, claim=claim, scope=held)
    return judge(_share(plain, floor), (), claim=claim, scope=held, unit=_UNIT)


def _share(plain: Run, floor: float) -> assumption.Comparison:
    """Blocks are the replicates of one boot's share; boots are the replicates of a build's."""
    levels = plain.levels
    per_boot = [log_shares(boot) for boot in plain.boots]
    single = len(per_boot) == 1
    return assumption.ratio_against(
        per_boot[0] if single else [fmean(logs) for logs in per_boot],
        floor=floor,
        alpha=levels.alpha,
        beta=levels.beta,
        replicate="block" if single else "boot",
    )
