"""A published claim held against our samples: under its own denominator, and under ours beside it.

What a claim is stands in ``file``; the tests are in ``assumption``, the words in ``verdict``.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from pytest_llmperf import assumption
from pytest_llmperf.assertions import (
    conclude,
    gate_name,
    only_records,
    quantile_row,
    ratio_row,
    scope_of,
)
from pytest_llmperf.attribution import where_lines
from pytest_llmperf.claims.published.file import Claim, why_not_ranked
from pytest_llmperf.claims.published.ours import acceptance_gap, refusals, unknown
from pytest_llmperf.denominator import CLOCKS, Denominator
from pytest_llmperf.errors import UsageError
from pytest_llmperf.report import Row
from pytest_llmperf.run import Pair, Run
from pytest_llmperf.units import quantity
from pytest_llmperf.verdict import Verdict, undecided

__all__ = ["Claim", "assert_claim", "why_not_ranked"]

_REMEDY = "samples of what the claim was counted over, or a claim that says it"
_SAID = {
    "PASS": "it holds",
    "REGRESS": "it is not met",
    "INCONCLUSIVE": "it stays open",
}


def assert_claim(given: Run | Pair, claim: Claim) -> list[Verdict]:
    """Assert that a published claim is met by our samples, counted as the claim counts.

    The same samples under this test's own denominator stand beside it, with what explains the gap.
    A claim that leaves out a part of its denominator, or was counted over something that these
    samples are not, is INCONCLUSIVE with the fields named: unknown never equals known.

    :param claim: of a ratio for a pair, else for a run; ``Claim.read(path)`` gives one.
    :returns: the verdict, as a list of one.
    :raises Regression: the claim is not met.
    :raises InvalidMeasurement: the samples did not measure what they declare.
    :raises UsageError: a ratio is claimed of one run.
    """
    run, pair = _arms(given, claim)
    if only_records(run.gate):
        return []
    return conclude(run.gate, [_row(run, pair, claim)])


def _arms(given: object, claim: object) -> tuple[Run, Pair | None]:
    if not isinstance(claim, Claim):
        raise UsageError(
            f"{claim!r} is no claim.",
            f"It is a {type(claim).__name__}.",
            "Read one: Claim.read(Path(__file__).with_name('claim.toml')).",
        )
    if isinstance(given, Pair):
        return given.candidate, given
    if isinstance(given, Run) and claim.unit != "x":
        return given, None
    raise UsageError(
        f"The claim {claim.name!r} cannot be held against {given!r}.",
        f"It is of {quantity(claim.number, claim.unit)}, and that is a {type(given).__name__}.",
        "Give what llmperf.compare(...) handed back for a ratio, else what llmperf(...) did.",
    )


def _row(run: Run, pair: Pair | None, claim: Claim) -> Row:
    words = f"{claim.name} claims {_bound(claim)}"
    of, refused = claim.counted_by, refusals(claim, run, pair)
    if of is None or refused:
        return _refused(run, pair, words, refused)
    # Without a bound on the cache there is nothing to prove: ours is what was declared.
    of = msgspec.structs.replace(of, prefix=run.denominator.prefix)
    row = _judged(run, pair, claim, of)
    own = _own(run, pair, claim)
    return msgspec.structs.replace(
        row,
        verdict=msgspec.structs.replace(row.verdict, claim=words),
        findings=(*_explained(row, own, claim, of, run), *row.findings),
    )


def _bound(claim: Claim) -> str:
    relation = "at most" if claim.unit == "s" else "at least"
    return f"{relation} {quantity(claim.number, claim.unit)}"


def _refused(run: Run, pair: Pair | None, words: str, why: list[str]) -> Row:
    """No verdict on the claim: these samples are not known to be of what it was counted over."""
    verdict = undecided(
        f"these samples and the claim are not known to be alike: {'; '.join(why)}",
        _REMEDY,
        claim=words,
        scope=scope_of(run, "this boot only"),
    )
    return Row(
        gate=gate_name(run.gate),
        verdict=verdict,
        denominator=run.denominator if pair is None else pair.of,
        arms=pair.arms if pair else None,
        evidence=pair.evidence if pair else run.evidence,
        where=where_lines([each.boots for each in (pair.runs if pair else (run,))]),
    )


def _judged(run: Run, pair: Pair | None, claim: Claim, of: Denominator) -> Row:
    """Hold the number against the samples counted by a denominator; nothing is raised."""
    if claim.unit == "x" and pair is not None:
        counted = Pair(
            pair.candidate.recounted(of),
            pair.reference.recounted(
                msgspec.structs.replace(of, prefix=pair.reference.denominator.prefix)
            ),
            of=of,
            factor=pair.factor,
        )
        return ratio_row(counted, claim.number)
    relation: assumption.Relation = "at most" if claim.unit == "s" else "at least"
    return quantile_row(run.recounted(of), 0.5, claim.number, relation)


def _own(run: Run, pair: Pair | None, claim: Claim) -> Row | None:
    """The same samples by this test's own denominator, where it counts in the claim's unit."""
    own = pair.of if pair is not None and claim.unit == "x" else run.denominator
    if claim.unit not in ("x", own.unit_text):
        return None
    return _judged(run, pair, claim, own)


def _explained(row: Row, own: Row | None, claim: Claim, of: Denominator, run: Run) -> Iterator[str]:
    """Which difference explains the gap between the claim's number and ours."""
    if row.verdict.contradictions:
        return
    yield f"{_source(claim)} By {_counted(of)} these samples give {row.number}: {_said(row)}."
    if own is not None and own.denominator.differences(of):
        fields = _fields(own.denominator.differences(of))
        yield (
            f"By this test's own count, {_counted(own.denominator)}, they give {own.number}: "
            f"the difference is the {fields}."
        )
    gap = acceptance_gap(claim, run)
    if gap is not None:
        yield gap
    left_out = unknown(claim)
    if left_out:
        yield f"The claim does not say its {', '.join(left_out)}: no ranking can rest on it."


def _fields(differences: list[str]) -> str:
    """The fields that differ; where the clock does, the unit only follows it."""
    names = [each.partition(":")[0] for each in differences]
    return " and ".join(name for name in names if name != "unit" or "clock" not in names)


def _source(claim: Claim) -> str:
    said = f"The claim: {claim.says}" if claim.says else f"The claim: {_bound(claim)}"
    return f"{said} ({claim.source})." if claim.source else f"{said}."


def _counted(of: Denominator) -> str:
    per = "per request" if of.unit == "request" else "per output token"
    return f"{CLOCKS[of.clock][1]}, {per}"


def _said(row: Row) -> str:
    return _SAID.get(row.word, "it is not judged")
