"""Suspects on fresh boots: all of them together, pair by pair, until each has its word.

What made them suspects is in ``screening``; the looks and their levels are in ``assumption``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from pytest_llmperf import assumption, proof
from pytest_llmperf.assumption.confirm import Confirmed, Suspect, confirm
from pytest_llmperf.assumption.looks import FEWEST, Arms, design_of
from pytest_llmperf.attribution import explain
from pytest_llmperf.evidence import Measured
from pytest_llmperf.gate import Gate
from pytest_llmperf.report import Row
from pytest_llmperf.run import Levels, Run, in_turn, shared_drift
from pytest_llmperf.suspects.held import SCOPE, Pending, claim_of, slow
from pytest_llmperf.suspects.screening import forced_row
from pytest_llmperf.tails import kept
from pytest_llmperf.units import counted, percent
from pytest_llmperf.verdict import Verdict, judge

MOST_PAIRS = 6
"""Fresh pairs after which a suspect that is still open is INCONCLUSIVE."""


def recorded_row(
    run: Run,
    gate: Gate,
    p: float,
    fresh: Sequence[tuple[Measured, Measured]],
    *,
    levels: Levels,
    alpha: float,
) -> Row:
    """Judge a confirmation that was recorded.

    :param alpha: this suspect's own; of several recorded ones each gets an equal part.
    """
    row = forced_row(run, gate, p, None)
    aside = Gate(gate.node_id, gate.denominator)
    aside.add(row)
    pending = Pending(gate=aside, row=0, run=run, p=p, levels=levels, retake=_Recorded(fresh))
    confirm_all([pending], alpha=alpha, beta=levels.beta, all_of=len(fresh))
    return aside.rows[0]


class _Recorded:
    """Fresh pairs that were measured before."""

    arms: Arms = "paired"

    def __init__(self, fresh: Sequence[tuple[Measured, Measured]]) -> None:
        self._fresh = fresh
        first = fresh[0]
        alone = first[0].measurement.measurement_id != first[1].measurement.measurement_id
        self.arms = "pooled" if alone else "paired"

    def __call__(self, pair: int) -> tuple[Measured, Measured]:
        return self._fresh[pair]


def confirm_all(
    pending: Sequence[Pending],
    *,
    alpha: float,
    beta: float,
    all_of: int | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> None:
    """Measure fresh pairs until every suspect has its word or no look is left; replace the rows.

    One family: the more suspects, the less each may claim of ``alpha`` (Holm).

    :param all_of: measure so many pairs, whatever the looks say; for the self-check and replays.
    """
    most = all_of or MOST_PAIRS
    design = design_of(
        pending[0].retake.arms, screened=len(pending[0].own), pairs=max(most, FEWEST)
    )
    found: dict[str, Confirmed] = {}
    for pair in range(most):
        for number, each in enumerate(pending):
            if all_of is not None or not _is_over(each, found, number):
                tell(f"confirming {each.gate.node_id}: pair {pair + 1} of at most {most}")
                candidate, reference = each.retake(pair)
                each.candidate.append(candidate)
                each.reference.append(reference)
        found = confirm(_suspects(pending, pair + 1), design=design, alpha=alpha, beta=beta)
        if all_of is None and all(_is_over(each, found, n) for n, each in enumerate(pending)):
            break
    for number, each in enumerate(pending):
        each.gate.rows[each.row] = _row(each, found[str(number)])


def _is_over(each: Pending, found: Mapping[str, Confirmed], number: int) -> bool:
    """Whether another pair could change the word: not where it is said, or is INVALID anyway."""
    is_decided = str(number) in found and found[str(number)].word is not None
    return is_decided or bool(each.candidate and _objections(each))


def _suspects(pending: Sequence[Pending], pairs: int) -> dict[str, Suspect]:
    """All suspects at one look; a decided one keeps its last boots, and its word stands."""
    return {
        str(index): Suspect(
            candidate=_filled(each, each.candidate, pairs),
            reference=_filled(each, each.reference, pairs),
            detect=each.levels.detect,
            tolerance=each.levels.tolerance,
            weight=each.weight,
            own=each.own,
        )
        for index, each in enumerate(pending)
    }


def _filled(each: Pending, boots: Sequence[Measured], pairs: int) -> tuple[float, ...]:
    logs = [slow(each.run, boot, each.p) for boot in boots]
    return tuple(logs + logs[-1:] * (pairs - len(logs)))


def _row(each: Pending, found: Confirmed) -> Row:
    run, other = _arms(each)
    old = each.gate.rows[each.row]
    objections = _objections(each)
    findings = [*explain(each.candidate, each.reference).lines] if found.word == "REGRESS" else []
    findings += [*_again(each.candidate), *shared_drift([run, other])]
    return msgspec.structs.replace(
        old,
        verdict=kept(
            _verdict(each, found, objections), run, other, tolerance=each.levels.tolerance
        ),
        estimate=None if objections else found.ratio,
        arms=f"{_engine(run)} against {_engine(other)}",
        evidence=f"{run.evidence}; against {other.evidence}",
        findings=tuple(findings),
    )


def _arms(each: Pending) -> tuple[Run, Run]:
    candidate = Run(each.candidate, denominator=each.run.denominator, levels=each.levels)
    reference = Run(each.reference, denominator=each.run.denominator, levels=each.levels)
    return candidate, reference


def _objections(each: Pending) -> tuple[proof.Contradiction, ...]:
    return (*in_turn(_arms(each)), *_between(each))


def _again(boots: Sequence[Measured]) -> list[str]:
    again = [str(at) for at, boot in enumerate(boots, start=1) if boot.measurement.attempt > 1]
    if not again:
        return []
    return [
        f"Measured again, since the machine was disturbed the first time: pair {', '.join(again)}."
    ]


def _between(each: Pending) -> list[proof.Contradiction]:
    of = each.run.denominator
    return [
        found
        for mine, other in zip(each.candidate, each.reference, strict=True)
        for found in proof.pair_contradictions(mine, other, "profile", of)
    ][:1]


def _engine(run: Run) -> str:
    return run.measured.arm.engine


def _verdict(each: Pending, found: Confirmed, objections: Sequence[object]) -> Verdict:
    claim = claim_of(each.run, each.p, each.levels.detect, "the reference")
    if objections:
        return judge(None, objections, claim=claim, scope=SCOPE, unit="x")  # type: ignore[arg-type]
    comparison = assumption.Comparison(
        relation="at most",
        boundary=1 + (each.levels.tolerance if found.word == "REGRESS" else each.levels.detect),
        estimate=found.ratio,
        low=found.low,
        high=found.high,
        confidence=1 - found.level_regress - found.level_pass,
        replicate="boot",
        n=found.pairs,
        alpha=found.level_regress,
        beta=found.level_pass,
        p_regress=found.p_regress if found.word != "PASS" else None,
        p_pass=found.p_pass if found.word != "REGRESS" else None,
        detectable=found.detectable,
        assumption=found.assumption,
        warnings=found.warnings,
    )
    word = found.word or "INCONCLUSIVE"
    seen = "unknown" if found.detectable is None else percent(found.detectable)
    return Verdict(
        word=word,
        claim=claim,
        scope=SCOPE,
        reason=_reason(each, found),
        unit="x",
        would_decide=None if found.word else f"more pairs; these could see {seen}",
        comparison=comparison,
    )


def _reason(each: Pending, found: Confirmed) -> str:
    pairs = f"after {counted(found.decided_at or found.pairs, 'pair')} of fresh boots"
    if found.word == "REGRESS":
        return (
            f"{pairs} slower than the reference by more than {percent(each.levels.tolerance)} "
            f"(adjusted p {found.adjusted_regress:.2g} at {percent(found.alpha)} for "
            f"{counted(found.suspects, 'suspect')})"
        )
    if found.word == "PASS":
        return f"{pairs} a slow-down of {percent(each.levels.detect)} is excluded"
    return f"{pairs} neither a regression nor its absence is shown"
