"""A gate's latest sessions against its pinned anchor: told wherever there is one, judged if asked.

The test is in ``assumption.creep``; anchors are pinned in ``history``. One session against the
rolling history is ``suspects``' affair.
"""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

from pytest_llmperf.assumption import BOOTS, Comparison
from pytest_llmperf.assumption.creep import LATEST, Creep, creep
from pytest_llmperf.gate import Gate
from pytest_llmperf.history import History
from pytest_llmperf.history.derive import SeriesName
from pytest_llmperf.history.past import Anchor
from pytest_llmperf.identity import denominator_id, place_of
from pytest_llmperf.plan import CANDIDATE
from pytest_llmperf.report import Row
from pytest_llmperf.run import Run
from pytest_llmperf.suspects import slowness
from pytest_llmperf.units import counted, percent, probability, quantile_name, ratio
from pytest_llmperf.verdict import Verdict, judge, undecided, unjudged

_SCOPE = "the last sessions"


def creep_row(
    root: Path, run: Run, gate: Gate, p: float, *, session_id: str, allowed: float | None
) -> Row | None:
    """Hold the latest sessions, this one the last of them, against the gate's anchor.

    A session of fewer than three boots does not count itself among them.

    :param allowed: the share by which they may be worse before the gate is red; ``None``: the row
        tells how far they are and is not judged.
    :returns: ``None`` where no anchor is pinned, or the run measured something else.
    """
    if run.contradictions or not root.is_dir():
        return None
    measured = run.measured
    call = 0 if run.origin is None else run.origin.call
    series: SeriesName = "candidate" if measured.arm.name == CANDIDATE else "reference"
    key = (gate.node_id, place_of(measured), denominator_id(run.denominator))
    with History(root) as history:
        anchor = history.anchor(*key, call=call, series=series)
        if anchor is None:
            return None
        past = history.sessions(*key, newest=LATEST, call=call, series=series, without=session_id)
    statistic = quantile_name(p)
    means = [fmean(logs) for each in past if (logs := each.slowness(statistic))]
    if run.distinct_boots >= BOOTS:
        means.append(fmean(slowness(run, p)))
    pinned = [fmean(logs) for each in anchor.sessions if (logs := each.slowness(statistic))]
    found = creep(means, pinned, allowed=allowed or 0.0)
    what = f"{statistic} of {run.denominator.name}"
    return Row(
        gate=gate.node_id.rpartition("/")[2],
        verdict=_verdict(found, anchor, what, allowed),
        denominator=run.denominator,
        estimate=found.ratio,
        arms=f"the last {counted(found.latest, 'session')} against anchor {anchor.label}",
        evidence=f"anchor {anchor.label} of {counted(found.anchor, 'session')}: {anchor.reason} "
        f"({anchor.who}, {anchor.when[:10]})",
    )


def _verdict(found: Creep, anchor: Anchor, what: str, allowed: float | None) -> Verdict:
    claim = f"{what} not crept from anchor {anchor.label}"
    if allowed is not None:
        claim = f"{claim} by more than {percent(allowed)}"
    if found.is_creeping is None:
        why = (
            f"{counted(found.latest, 'session')} against an anchor of {found.anchor}: "
            f"it takes {LATEST} that scatter, and two in the anchor"
        )
        if allowed is None:
            return unjudged(why, claim=claim, scope=_SCOPE, unit="x")
        return undecided(why, "more sessions in history", claim=claim, scope=_SCOPE)
    if allowed is not None:
        return _judged(found, claim, allowed)
    seen = f"{ratio(found.ratio)} of the anchor, at least {ratio(found.low)}"
    word = "CREEPING" if found.is_creeping else "no creep is shown"
    reason = f"{word}: {seen} ({probability(found.p)})"
    return unjudged(reason, claim=claim, scope=_SCOPE, unit="x")


def _judged(found: Creep, claim: str, allowed: float) -> Verdict:
    comparison = Comparison(
        relation="at most",
        boundary=1 + allowed,
        estimate=found.ratio or 1.0,
        low=found.low,
        high=found.high,
        confidence=1 - found.alpha - found.beta,
        replicate="session",
        n=found.latest,
        alpha=found.alpha,
        beta=found.beta,
        p_regress=found.p,
        p_pass=found.p_within,
        assumption="sessions are independent, their logs normal and equally spread",
    )
    return judge(comparison, (), claim=claim, scope=_SCOPE, unit="x")
