"""The claim that a budget holds for every conversation of a space, and what a search says of it.

Which shapes are tried is in ``search``; how a quantile is held against a limit, in ``assumption``.
"""

from __future__ import annotations

from collections import Counter
from statistics import median
from typing import Protocol

from pytest_llmperf import assumption
from pytest_llmperf.assertions import error_of
from pytest_llmperf.assumption.reach import turns_for_quantile
from pytest_llmperf.bench import Lease
from pytest_llmperf.budget import Budget
from pytest_llmperf.errors import EvidenceError, UsageError
from pytest_llmperf.gate import Gate
from pytest_llmperf.proof import Contradiction
from pytest_llmperf.report import Row
from pytest_llmperf.run import Run
from pytest_llmperf.shapes.search import Search
from pytest_llmperf.shapes.shape import Shape
from pytest_llmperf.shapes.strategies import Space
from pytest_llmperf.units import counted, quantity
from pytest_llmperf.verdict import Verdict, Word, claim_text, judge, undecided, unjudged
from pytest_llmperf.workload import Workload

_SCOPE = "this boot only"


class Measuring(Protocol):
    """The ``llmperf`` fixture, as far as a search needs it."""

    @property
    def gate(self) -> Gate:
        """The test's gate."""

    def __call__(self, engine: Lease, workload: Workload) -> Run:
        """Measure one engine under the test's denominator."""


def assert_budget_holds(
    llmperf: Measuring,
    engine: Lease,
    space: Space,
    *,
    p50_s: float | Budget,
    most_probes: int = 24,
    within_s: float = 150.0,
) -> list[Verdict]:
    """Assert that no conversation of a space breaks a limit on the median, in seconds.

    Every probe is a measurement of its own. A shape counts as breaking the limit only when its
    verdict is REGRESS, and it is reported only when fresh prompts of it come to REGRESS again. In
    gate mode the last boot is searched.

    :param space: the shapes that may be tried.
    :param most_probes: shapes measured at most; ``within_s``: seconds of measuring at most.
    :returns: the verdict, as a list of one.
    :raises Regression: a conversation breaks the limit; the smallest one found is named.
    :raises InvalidMeasurement: a probe did not measure what it declares.
    :raises UsageError: no conversation of the marker's turns could ever break the limit.
    """
    llmperf.gate.has_asserted = True
    if llmperf.gate.is_recording:
        return []
    limit = p50_s.limit if isinstance(p50_s, Budget) else p50_s
    probes = _Probes(llmperf, engine, space, limit or 0.0, most=most_probes, within_s=within_s)
    if limit is None and isinstance(p50_s, Budget):
        verdict = unjudged(p50_s.missing, claim=f"p50 of {llmperf.gate.denominator.name}")
        row = Row(gate=_name(llmperf.gate), verdict=verdict, denominator=llmperf.gate.denominator)
    else:
        row = _judged(probes, Search(space, probes.word), space)
    llmperf.gate.add(row)
    error = error_of(row)
    if error is not None:
        raise error
    return [row.verdict]


class _Probes:
    """Measures shapes and keeps what came of each."""

    def __init__(
        self,
        llmperf: Measuring,
        engine: Lease,
        space: Space,
        limit: float,
        *,
        most: int,
        within_s: float,
    ) -> None:
        self._llmperf = llmperf
        self._space = space
        self._engine = engine
        self._most = most
        self._within_ns = within_s * 1e9
        self.limit = limit
        self.gate = llmperf.gate
        self.made: list[tuple[Shape, Run]] = []
        self.invalid: tuple[Shape, Run] | None = None

    def word(self, shape: Shape) -> Word | None:
        """The word of a shape; ``None`` when the probes or the time are used up.

        The time is that of the evidence, so that a replay ends where the run did.
        """
        if self.invalid or len(self.made) >= self._most or self.spent_ns >= self._within_ns:
            return None
        run = self.measure(shape)
        if run is None:
            return None
        if run.contradictions:
            self.invalid = (shape, run)
            return None
        return self.verdict(run, "").word

    def measure(self, shape: Shape) -> Run | None:
        """Measure a shape with fresh prompts; ``None`` where recorded evidence has no more."""
        workload = self._space.prompts(shape)
        try:
            run = self._llmperf(self._engine, workload)
        except EvidenceError:
            if not self.made:
                raise
            return None
        recorded = run.measured.measurement.workload_digest
        if recorded != workload.digest:
            raise EvidenceError(
                f"Probe {len(self.made)} of the recorded search is of another conversation.",
                f"It is {run.measured.measurement.workload}; this search asks for {shape}.",
                "The search, its space or its limit changed: record again.",
            )
        _check_power(run)
        self.made.append((shape, run))
        return run

    @property
    def spent_ns(self) -> int:
        """From the first probe's first request to the last probe's last answer."""
        if not self.made:
            return 0
        first, last = self.made[0][1].measured, self.made[-1][1].measured
        sent = [each.stamps.sent_ns for each in first.requests if each.stamps.sent_ns]
        closed = [each.stamps.closed_ns for each in last.requests if each.stamps.closed_ns]
        return max(closed) - min(sent) if sent and closed else 0

    def verdict(self, run: Run, claim: str) -> Verdict:
        """The verdict of one probe, on its own boot."""
        found: tuple[Contradiction, ...] = run.contradictions
        return judge(
            None if found else _compared(run, self.limit),
            found,
            claim=claim,
            scope=_SCOPE,
            unit=run.denominator.unit_text,
        )


def _compared(run: Run, limit: float) -> assumption.Comparison:
    levels = run.levels
    return assumption.quantile_against(
        run.values[-1], p=0.5, limit=limit, alpha=levels.alpha, beta=levels.beta
    )


def _judged(probes: _Probes, search: Search, space: Space) -> Row:
    """Search, hold what was found against fresh prompts, and word what came of it."""
    smallest = search.smallest()
    what = claim_text(f"p50 of {probes.gate.denominator.name}", "at most", probes.limit, "s")
    within = f"{what}, up to {space.largest}"
    if probes.invalid is not None:
        shape, run = probes.invalid
        return _row(probes, search, run, probes.verdict(run, f"{within}; probing {shape}"))
    if smallest is None:
        return _held(probes, search, within)
    for shape in search.broken:
        again = probes.measure(shape)
        if again is None:
            break
        claim = f"{what}; the smallest conversation that breaks it: {_described(shape, again)}"
        verdict = probes.verdict(again, claim)
        if verdict.word in ("REGRESS", "INVALID"):
            return _row(probes, search, again, verdict)
    doubt = undecided(
        f"{smallest} was over the limit, and was not again with fresh prompts",
        "more turns for each conversation",
        claim=within,
        scope=_SCOPE,
    )
    return _row(probes, search, probes.made[-1][1], doubt)


def _held(probes: _Probes, search: Search, claim: str) -> Row:
    """No shape broke the limit: it holds where every one of them is decided."""
    open_ones = [each for each, word in search.words.items() if word != "PASS"]
    shown = next((each for each in open_ones), None)
    slowest = max(probes.made, key=lambda each: median(each[1].values[-1]))
    shape, run = next((each for each in probes.made if each[0] == shown), slowest)
    verdict = probes.verdict(run, f"{claim}; the {'open' if shown else 'slowest'} one: {shape}")
    if search.is_over and verdict.word == "PASS":
        verdict = undecided(
            "the search ended before enough conversations were tried",
            "more probes or more time",
            claim=claim,
            scope=_SCOPE,
        )
    return _row(probes, search, run, verdict)


def _row(probes: _Probes, search: Search, run: Run, verdict: Verdict) -> Row:
    words = Counter(search.words.values())
    told = ", ".join(f"{count} {word}" for word, count in words.items()) or "none judged"
    return Row(
        gate=_name(probes.gate),
        verdict=verdict,
        denominator=run.denominator,
        evidence=run.evidence,
        findings=(
            f"{counted(len(probes.made), 'probe')}: {told}",
            *(
                f"{shape}: {quantity(median(each.values[-1]), 's')} {probes.verdict(each, '').word}"
                for shape, each in probes.made
                if each.values[-1]
            ),
            *run.findings,
        ),
    )


def _described(shape: Shape, run: Run) -> str:
    sizes = [each.usage.prompt_tokens for each in run.turns if each.usage.prompt_tokens]
    return f"{shape} ({median(sizes):.0f} prompt tokens)" if sizes else str(shape)


def _check_power(run: Run) -> None:
    """Refuse a plan by which no shape could ever come to REGRESS."""
    turns = run.measured.measurement.turns
    fewest = turns_for_quantile(0.5, run.levels.alpha, "at most")
    if turns < fewest:
        raise UsageError(
            f"With {counted(turns, 'turn')} a conversation no budget can be broken.",
            f"Even if all were over a median's limit, chance does that once in {2**turns} times, "
            f"and the level is {run.levels.alpha:g}.",
            f"Plan {fewest} turns or more in the marker, or select fewer gates at once: they share "
            "the run's alpha.",
        )


def _name(gate: Gate) -> str:
    return gate.node_id.rpartition("/")[2]
