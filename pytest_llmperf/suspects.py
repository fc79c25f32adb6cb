"""Gates against the past: screened by history, and judged on fresh boots when suspected.

The tests are in ``assumption``; where past sessions come from is the session's business, and so is
how engines are booted. Nothing here knows pytest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Protocol

import msgspec

from pytest_llmperf import assumption, proof
from pytest_llmperf.assumption.boots import log_quantile
from pytest_llmperf.assumption.confirm import Confirmed, Suspect, confirm
from pytest_llmperf.assumption.looks import Arms, design_of
from pytest_llmperf.assumption.screen import Screened, screen
from pytest_llmperf.assumption.tail import Tail
from pytest_llmperf.attribution import explain, where_lines
from pytest_llmperf.evidence import Measured
from pytest_llmperf.gate import Gate
from pytest_llmperf.report import Row
from pytest_llmperf.run import Levels, Run
from pytest_llmperf.tails import kept, tail_logs, taken
from pytest_llmperf.units import counted, percent, quantile_name, ratio
from pytest_llmperf.verdict import Verdict, judge, undecided

MOST_PAIRS = 6
"""Fresh pairs after which a suspect that is still open is INCONCLUSIVE."""

_SCOPE = "this build"


class Past(msgspec.Struct, frozen=True, kw_only=True):
    """What a gate is held against."""

    sessions: tuple[tuple[float, ...], ...] = ()
    """Each past session's boots, as logs of which more is worse."""
    tails: tuple[tuple[float, ...], ...] = ()
    """The same of their p95s as durations; empty where one lacks it."""
    missing: str = ""
    """Why there are none."""
    subject: tuple[str, ...] = ()
    """What is known to differ between this subject and the newest past one."""


class Retake(Protocol):
    """Measures one gate again on a fresh pair of boots."""

    @property
    def arms(self) -> Arms:
        """``paired`` where both engines are up side by side, else ``pooled``."""

    def __call__(self, pair: int) -> tuple[Measured, Measured]:
        """Boot and measure pair number ``pair``: candidate and reference."""


class Pending(msgspec.Struct, kw_only=True):
    """A gate that waits for its confirmation."""

    gate: Gate
    row: int
    """Which of the gate's rows is to be replaced."""
    run: Run
    p: float
    levels: Levels
    retake: Retake
    weight: float = 1.0
    candidate: list[Measured] = []
    reference: list[Measured] = []

    @property
    def own(self) -> tuple[float, ...]:
        """The boots that were screened, as logs of which more is worse."""
        return slowness(self.run, self.p)


def slowness(run: Run, p: float) -> tuple[float, ...]:
    """Each boot's log quantile, with the sign that makes more worse."""
    return tuple(_slow(run, boot, p) for boot in run.boots)


def claim_of(run: Run, p: float, detect: float, reference: str) -> str:
    """Word what is claimed: that the number did not get worse than the reference's."""
    what = f"{quantile_name(p)} of {run.denominator.name}"
    return f"{what} not worse than {reference} by {percent(detect)}"


def quick_row(run: Run, gate: Gate, p: float, past: Past) -> Row:
    """One boot against history: it says where it lies, and decides nothing."""
    claim = claim_of(run, p, run.levels.detect, "history")
    why = "one boot says nothing of a build" if past.sessions else past.missing
    verdict = undecided(why, "--llmperf-mode=gate", claim=claim, scope="this boot only")
    return _gate_row(run, gate, verdict, _ratio_to(run, p, past))


def forced_row(run: Run, gate: Gate, p: float, other: object) -> Row:
    """Go to fresh boots of a stated reference without asking history."""
    source = getattr(other, "source", "a reference")
    claim = claim_of(run, p, run.levels.detect, source)
    verdict = undecided(
        "its fresh pairs of boots were not measured",
        "the gate's confirm item",
        claim=claim,
        scope=_SCOPE,
    )
    return _gate_row(run, gate, verdict, None)


def screened_row(run: Run, gate: Gate, p: float, past: Past) -> tuple[Row, float | None]:
    """Hold several boots against history: PASS, or INCONCLUSIVE until it is confirmed.

    :returns: the row and, where the gate goes to confirm, its weight there.
    """
    claim = claim_of(run, p, run.levels.detect, "history")
    if run.contradictions:
        verdict = judge(None, run.contradictions, claim=claim, scope=_SCOPE, unit="x")
        return _gate_row(run, gate, verdict, None), None
    levels = run.levels
    found = screen(slowness(run, p), past.sessions, detect=levels.detect, beta=levels.beta)
    if found.word == "PASS":
        verdict = judge(_screening(found), (), claim=claim, scope=_SCOPE, unit="x")
        verdict = _without_worse_tail(verdict, run, past)
        return _gate_row(run, gate, verdict, found.ratio, past), None
    reason = _not_passed(found, past)
    verdict = undecided(reason, "fresh boots of candidate and reference", claim=claim, scope=_SCOPE)
    return _gate_row(run, gate, verdict, found.ratio, past), found.weight


def _without_worse_tail(verdict: Verdict, run: Run, past: Past) -> Verdict:
    """A PASS by history, unless history suspects the p95 of what has passed."""
    now = tail_logs(run)
    if verdict.word != "PASS" or not now or not past.tails:
        return verdict
    found = screen(now, past.tails, detect=run.levels.detect, beta=run.levels.beta)
    if found.word != "SUSPECT" or found.ratio is None:
        return verdict
    return taken(verdict, Tail(is_worse=True, ratio=found.ratio, p=found.p_suspect))


def unconfirmed(row: Row, why: str, would_decide: str | None = None) -> Row:
    """Say that a suspect was not confirmed, what was lost by it, and what would decide."""
    reason = f"{row.verdict.reason}; not confirmed: {why}, so history's own noise decides nothing"
    verdict = msgspec.structs.replace(
        row.verdict, reason=reason, would_decide=would_decide or row.verdict.would_decide
    )
    return msgspec.structs.replace(row, verdict=verdict)


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


def _gate_row(
    run: Run, gate: Gate, verdict: Verdict, estimate: float | None, past: Past | None = None
) -> Row:
    apart = past.subject if past is not None else ()
    differs = (f"Since the last session: {'; '.join(apart)}.",) if apart else ()
    return Row(
        gate=gate.node_id.rpartition("/")[2],
        verdict=msgspec.structs.replace(verdict, unit="x"),
        denominator=run.denominator,
        estimate=None if run.contradictions else estimate,
        evidence=run.evidence,
        findings=(*run.findings, *differs),
        where=where_lines([run.boots]),
    )


def _ratio_to(run: Run, p: float, past: Past) -> float | None:
    if not past.sessions or run.contradictions:
        return None
    now, then = fmean(slowness(run, p)), fmean(map(fmean, past.sessions))
    return math.exp(now - then)


def _screening(found: Screened) -> assumption.Comparison:
    return assumption.Comparison(
        relation="at most",
        boundary=1 + found.detect,
        estimate=found.ratio or 1.0,
        low=found.low,
        high=found.high,
        confidence=1 - found.alpha_screen - found.beta,
        replicate="boot",
        n=found.boots,
        alpha=found.alpha_screen,
        beta=found.beta,
        p_regress=None,
        p_pass=found.p_pass,
        assumption=f"this session is drawn as the last {found.sessions} sessions were",
    )


def _not_passed(found: Screened, past: Past) -> str:
    seen = (
        f"{ratio(found.ratio)} of history" if found.ratio is not None else "nothing to hold it to"
    )
    word = "suspected" if found.word == "SUSPECT" else "neither passed nor suspected"
    return "; ".join(
        [f"{word} by the screen ({seen})", *found.warnings, *filter(None, [past.missing])]
    )


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
    design = design_of(pending[0].retake.arms, screened=len(pending[0].own), pairs=most)
    found: dict[str, Confirmed] = {}
    for pair in range(most):
        for number, each in enumerate(pending):
            if all_of is not None or not _is_decided(found, number):
                tell(f"confirming {each.gate.node_id}: pair {pair + 1} of at most {most}")
                candidate, reference = each.retake(pair)
                each.candidate.append(candidate)
                each.reference.append(reference)
        found = confirm(_suspects(pending, pair + 1), design=design, alpha=alpha, beta=beta)
        if all_of is None and all(_is_decided(found, number) for number in range(len(pending))):
            break
    for number, each in enumerate(pending):
        each.gate.rows[each.row] = _row(each, found[str(number)])


def _is_decided(found: Mapping[str, Confirmed], number: int) -> bool:
    return str(number) in found and found[str(number)].word is not None


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
    logs = [_slow(each.run, boot, each.p) for boot in boots]
    return tuple(logs + logs[-1:] * (pairs - len(logs)))


def _slow(run: Run, boot: Measured, p: float) -> float:
    one = Run([boot], denominator=run.denominator)
    sign = -1.0 if run.denominator.higher_is_better else 1.0
    return sign * log_quantile(one.values[0], 1 - p if sign < 0 else p)


def _row(each: Pending, found: Confirmed) -> Row:
    run = Run(each.candidate, denominator=each.run.denominator, levels=each.levels)
    other = Run(each.reference, denominator=each.run.denominator, levels=each.levels)
    old = each.gate.rows[each.row]
    objections = (*run.contradictions, *other.contradictions, *_between(each))
    findings = [*explain(each.candidate, each.reference).lines] if found.word == "REGRESS" else []
    findings += _again(each.candidate)
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
        return judge(None, objections, claim=claim, scope=_SCOPE, unit="x")  # type: ignore[arg-type]
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
        scope=_SCOPE,
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
