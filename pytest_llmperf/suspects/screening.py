"""History's word on a gate: where it lies, whether it passes, and whether it is suspected.

History never makes a gate red; what becomes of a suspect is in ``confirming``.
"""

from __future__ import annotations

import math
from statistics import fmean

import msgspec

from pytest_llmperf import assumption
from pytest_llmperf.assumption.screen import Screened, screen
from pytest_llmperf.assumption.tail import Tail
from pytest_llmperf.attribution import where_lines
from pytest_llmperf.gate import Gate
from pytest_llmperf.report import Row
from pytest_llmperf.run import Run
from pytest_llmperf.suspects.held import SCOPE, Past, claim_of, slowness
from pytest_llmperf.tails import tail_logs, taken
from pytest_llmperf.units import ratio
from pytest_llmperf.verdict import Verdict, judge, undecided


def quick_row(run: Run, gate: Gate, p: float, past: Past) -> Row:
    """One boot against history: it says where it lies, and decides nothing."""
    claim = claim_of(run, p, run.levels.detect, "history")
    why = "one boot says nothing of a build" if past.sessions else past.missing
    engine = run.measured.engine
    attached = engine is not None and engine.attached
    would_decide = (
        "boots of our own: name a profile instead of attaching"
        if attached
        else "--llmperf-mode=gate, where it is measured"
    )
    verdict = undecided(why, would_decide, claim=claim, scope="this boot only")
    return _gate_row(run, gate, verdict, _ratio_to(run, p, past))


def forced_row(run: Run, gate: Gate, p: float, other: object) -> Row:
    """Go to fresh boots of a stated reference without asking history."""
    source = getattr(other, "source", "a reference")
    claim = claim_of(run, p, run.levels.detect, source)
    verdict = undecided(
        "its fresh pairs of boots were not measured",
        "the gate's confirm item",
        claim=claim,
        scope=SCOPE,
    )
    return _gate_row(run, gate, verdict, None)


def screened_row(run: Run, gate: Gate, p: float, past: Past) -> tuple[Row, float | None]:
    """Hold several boots against history: PASS, or INCONCLUSIVE until it is confirmed.

    :returns: the row and, where the gate goes to confirm, its weight there.
    """
    claim = claim_of(run, p, run.levels.detect, "history")
    if run.contradictions:
        verdict = judge(None, run.contradictions, claim=claim, scope=SCOPE, unit="x")
        return _gate_row(run, gate, verdict, None), None
    levels = run.levels
    found = screen(slowness(run, p), past.sessions, detect=levels.detect, beta=levels.beta)
    if found.word == "PASS":
        verdict = judge(_screening(found), (), claim=claim, scope=SCOPE, unit="x")
        verdict = _without_worse_tail(verdict, run, past)
        return _gate_row(run, gate, verdict, found.ratio, past), None
    reason = _not_passed(found, past)
    verdict = undecided(reason, "fresh boots of candidate and reference", claim=claim, scope=SCOPE)
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
