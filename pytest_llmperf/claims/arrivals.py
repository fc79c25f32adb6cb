"""What a test asserts of requests that arrived all at once.

Their account is in ``onset`` and ``burst``; how one number a boot is judged is in ``seen``.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pytest_llmperf.analysis.onset import Onset
from pytest_llmperf.assertions import check_limit, conclude, gate_name, only_records, wants_run
from pytest_llmperf.attribution import where_lines
from pytest_llmperf.claims.seen import BUILD, Claim, Limit, held
from pytest_llmperf.errors import UsageError
from pytest_llmperf.load import picture
from pytest_llmperf.load.burst import Bounded
from pytest_llmperf.proof import Contradiction
from pytest_llmperf.report import Row
from pytest_llmperf.run import Run
from pytest_llmperf.units import count, counted, quantile_name
from pytest_llmperf.verdict import Verdict, certain, judge, undecided

_SCOPE = "this burst only"


def assert_burst(
    run: Run,
    *,
    completed: int | None = None,
    p50_s: Limit | None = None,
    p90_s: Limit | None = None,
    p95_s: Limit | None = None,
    p99_s: Limit | None = None,
    at_least_tps: Limit | None = None,
) -> list[Verdict]:
    """Assert what became of requests that arrived all at once.

    Always: none is lost, that is, each one completed or was refused with an HTTP status. How long
    they waited counts from when they were due; a request that was lost waited longest, and one
    that was refused counts as no wait.

    :param completed: how many must complete; all of them if not given.
    :param p99_s: as the other quantiles a limit in seconds, or ``budget(name)``.
    :param at_least_tps: output tokens per second of the completed ones over the whole burst.
    :returns: one verdict for each claim; INCONCLUSIVE ones do not raise.
    :raises Regression: too few completed, one was lost, or a limit is exceeded.
    :raises InvalidMeasurement: not every request is accounted for, or the run is invalid otherwise.
    :raises UsageError: the run is no burst, or ``completed`` is no number of its requests.
    """
    wants_run(run, Run)
    limits = {0.5: p50_s, 0.9: p90_s, 0.95: p95_s, 0.99: p99_s}
    stated = {p: limit for p, limit in limits.items() if limit is not None}
    for limit in (*stated.values(), *([] if at_least_tps is None else [at_least_tps])):
        check_limit(limit)
    bursts = _bursts(run, completed)
    if only_records(run.gate):
        return []
    page = _Page(run, bursts)
    rows = [page.completed(completed), page.none_lost()]
    rows += [page.waited(p, limit) for p, limit in stated.items()]
    rows += [] if at_least_tps is None else [page.throughput(at_least_tps)]
    if not page.objections:
        rows[-1] = msgspec.structs.replace(rows[-1], picture=page.picture())
        page.keep()
    return conclude(run.gate, rows)


def _bursts(run: Run, completed: int | None) -> list[Onset]:
    if run.denominator.arrival != "burst":
        raise UsageError(
            f"This assertion does not fit the denominator {run.denominator.name}.",
            f"It counts {run.denominator.words}.",
            "Mark the test with burst(requests=...), or use another assertion.",
        )
    bursts = [Onset(boot) for boot in run.boots]
    planned = bursts[-1].tally.planned
    if completed is not None and (isinstance(completed, bool) or not 1 <= completed <= planned):
        raise UsageError(
            f"completed={completed!r} is no number of this burst's requests.",
            f"{counted(planned, 'request')} arrive at once.",
            f"Give 1 to {planned}, or leave it out: all of them.",
        )
    return bursts


class _Page:
    """The rows of one burst, or of one a boot."""

    def __init__(self, run: Run, bursts: Sequence[Onset]) -> None:
        self.run = run
        self.bursts = bursts
        self.newest = bursts[-1]
        own = tuple(each for burst in bursts for each in burst.contradictions)
        self.objections: tuple[Contradiction, ...] = (*own, *run.contradictions)

    def completed(self, wanted: int | None) -> Row:
        """How many completed, against how many must."""
        planned = self.newest.tally.planned
        floor = planned if wanted is None else wanted
        worst = min(self.bursts, key=lambda each: each.tally.completed)
        verdict = self._counted(
            f"at least {count(floor)} of {counted(planned, 'request')} complete",
            worst,
            is_red=worst.tally.completed < floor,
        )
        row = self._row(verdict, float(worst.tally.completed), evidence=self._whole(worst))
        found = (*self.newest.on_machine, *self.run.findings)
        return msgspec.structs.replace(row, findings=found)

    def none_lost(self) -> Row:
        """That each one completed or was refused with a status."""
        worst = max(self.bursts, key=lambda each: each.tally.lost)
        verdict = self._counted("no request is lost", worst, is_red=worst.tally.lost > 0)
        return self._row(verdict, float(worst.tally.lost))

    def waited(self, p: float, limit: Limit) -> Row:
        """One quantile of the waits against its limit."""
        claim = Claim(
            what=f"{quantile_name(p)} from due to last token",
            relation="at most",
            limit=limit,
            unit="s",
            scope=_SCOPE,
        )
        found = [burst.waits.quantile(p) for burst in self.bursts]
        row = self._held(claim, found, "the server took no request on")
        return msgspec.structs.replace(row, evidence=self.newest.waits.beside)

    def throughput(self, floor: Limit) -> Row:
        """Output tokens per second over the whole burst."""
        claim = Claim(
            what="output of the whole burst",
            relation="at least",
            limit=floor,
            unit="tok/s",
            scope=_SCOPE,
        )
        rates = [burst.aggregate_tps for burst in self.bursts]
        found = [None if rate is None else Bounded(at_s=rate) for rate in rates]
        return self._held(claim, found, "no request completed, or one does not say its tokens")

    def picture(self) -> tuple[str, ...]:
        """The newest burst's queue."""
        return picture.queue_lines(self.newest.backlog)

    def keep(self) -> None:
        """Leave the picture of the queue with the evidence."""
        title = f"{self.newest.tally.planned} requests at once: the server's queue"
        self.run.keep("queue", picture.queue_svg(self.newest.backlog, title))

    def _counted(self, claim: str, burst: Onset, *, is_red: bool) -> Verdict:
        """A count is a fact: of several bursts the worst one speaks."""
        if self.objections:
            return self._invalid(claim, "requests")
        several = f"each of {counted(len(self.bursts), 'burst')}"
        return certain(
            "REGRESS" if is_red else "PASS",
            burst.tally.words,
            claim=claim,
            scope=_SCOPE if len(self.bursts) == 1 else several,
            unit="requests",
        )

    def _held(self, claim: Claim, found: Sequence[Bounded | None], nothing: str) -> Row:
        known = [each for each in found if each is not None]
        if self.objections:
            verdict = self._invalid(claim.words, claim.unit)
        elif len(known) < len(found):
            verdict = undecided(nothing, claim=claim.words, scope=claim.scope)
        else:
            verdict = held(claim, known, self.run)
        last = found[-1]
        if last is None:
            return self._row(verdict, None)
        return self._row(verdict, last.at_s, is_bound=last.is_more)

    def _invalid(self, claim: str, unit: str) -> Verdict:
        scope = _SCOPE if len(self.bursts) == 1 else BUILD
        return judge(None, self.objections, claim=claim, scope=scope, unit=unit)

    def _row(
        self,
        verdict: Verdict,
        number: float | None,
        *,
        is_bound: bool = False,
        evidence: str = "",
    ) -> Row:
        return Row(
            gate=gate_name(self.run.gate),
            verdict=verdict,
            denominator=self.run.denominator,
            estimate=None if self.objections else number,
            is_bound=is_bound,
            evidence=evidence,
            beside=() if self.objections else self.newest.beside,
            where=where_lines([self.run.boots]),
        )

    def _whole(self, burst: Onset) -> str:
        """All that is known of a burst: its sum, its queue, its machine, its proof."""
        return f"{burst.tally.words}; {burst.backlog.words}; {self.run.evidence}"
