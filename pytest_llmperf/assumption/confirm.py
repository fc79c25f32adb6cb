"""Suspects judged on fresh boots of candidate and reference, with looks after 3 to 6 pairs.

Only the fresh boots decide, so that whatever raised the suspicion cannot make a gate red. How
the looks follow each other is in ``path``, which gates come here in ``screen``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec

from pytest_llmperf.assumption.arrays import EQUAL, Numbers, numpy, special
from pytest_llmperf.assumption.comparison import (
    ALPHA,
    BETA,
    first_that_decides,
    logarithms,
    some,
)
from pytest_llmperf.assumption.looks import Arms, Design, gap_and_error, look_table
from pytest_llmperf.assumption.path import Path, follow, look_tests
from pytest_llmperf.assumption.student import noncentrality
from pytest_llmperf.errors import InvalidMeasurement, UsageError

CONFIRM_SHARE = 0.3
"""The confirmation's share of beta. The fifth that neither it nor the screen spends is a reserve
for boots that are not normal; fresh pairs that see ``detect`` at all hardly miss it."""

TOLERANCE = 0.02
"""Default relative slow-down that is no regression."""

ConfirmWord = Literal["REGRESS", "PASS"]


class Suspect(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One gate's fresh boots so far, pair by pair: logs of which more is worse."""

    candidate: tuple[float, ...]
    reference: tuple[float, ...]
    detect: float
    tolerance: float = TOLERANCE
    weight: float = 1.0
    """From ``Screened.weight``; only the proportions matter."""
    own: tuple[float, ...] = ()
    """The session's boots that were screened. Pooled arms take their spread, not their mean."""


class Confirmed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a gate's fresh boots say, at the look that decided or else the last one.

    ``None`` means that a thing cannot be said.
    """

    word: ConfirmWord | None
    """``None`` is undecided: measure another pair, or INCONCLUSIVE where no look is left."""
    decided_at: int | None
    """Pairs after which the word was reached."""
    pairs: int
    ratio: float
    low: float | None
    """One-sided bound at the level at which this look rejects for REGRESS."""
    high: float | None
    """One-sided bound at the level at which this look rejects for PASS."""
    p_regress: float | None
    """Before anything is adjusted."""
    p_pass: float | None
    worth_regress: float
    """Valid at any look: adjusted for looking several times."""
    adjusted_regress: float
    """Adjusted for the other suspects as well (Holm); REGRESS at or under alpha."""
    worth_pass: float
    level_regress: float
    """What ``p_regress`` must reach at this look, at the gate's first share of alpha."""
    level_pass: float
    alpha: float
    beta: float
    """The confirmation's share."""
    suspects: int
    df: int
    detectable: float | None
    """Relative slow-down that the last look finds with power 90 %, by the spread seen."""
    needed: int | None
    """Pairs, these included, that would decide an undecided gate with power 90 % at this ratio."""
    assumption: str
    warnings: tuple[str, ...] = ()


def confirm(
    suspects: Mapping[str, Suspect],
    *,
    design: Design,
    alpha: float = ALPHA,
    beta: float = BETA,
    beta_share: float = CONFIRM_SHARE,
) -> dict[str, Confirmed]:
    """Judge all suspects of a session together, from all their pairs so far.

    It keeps no state: call it again with one pair more. A word once reached stays, for each look
    is replayed in its order. REGRESS rejects "slower by ``tolerance`` at most" for the family of
    suspects at ``alpha``; PASS rejects "slower by ``detect`` or more" for the gate at its share.

    :raises InvalidMeasurement: suspects differ in their number of pairs, or a value is no log.
    :raises UsageError: ``detect`` is not over ``tolerance``.
    """
    pairs = _pairs_of(suspects)
    looked = [n for n in design.looks if n <= pairs]
    boots = list(suspects.values())
    tests = [[_tests(each, n, design) for n in looked] for each in boots]
    weights = numpy().array([each.weight for each in boots])
    path = None
    if looked:
        p = numpy().array(tests).reshape(len(boots), len(looked), 2)
        share = beta * beta_share
        path = follow(p[..., 0].T, p[..., 1].T, weights, design=design, alpha=alpha, beta=share)
    judged = _Judged(design, alpha, beta * beta_share, looked, weights, path)
    return {name: judged.gate(i, each, pairs) for i, (name, each) in enumerate(suspects.items())}


class _Judged(NamedTuple):
    """A session's confirmation, from which each gate's words are taken."""

    design: Design
    alpha: float
    beta: float
    looked: Sequence[int]
    weights: Numbers
    path: Path | None

    def gate(self, i: int, suspect: Suspect, pairs: int) -> Confirmed:
        word, at = self._word(i)
        n = at or (self.looked[-1] if self.looked else pairs)
        level_r, level_p = self._levels(i, n)
        gap, se, df = _gap(suspect, n, self.design)
        tests = _tests(suspect, n, self.design) if self.looked else None
        return Confirmed(
            word=word,
            decided_at=at,
            pairs=pairs,
            ratio=math.exp(gap),
            low=_bound(gap, -se, df, level_r) if tests else None,
            high=_bound(gap, se, df, level_p) if tests else None,
            p_regress=tests[0] if tests else None,
            p_pass=tests[1] if tests else None,
            worth_regress=float(self.path.worth_regress[i]) if self.path else 1.0,
            adjusted_regress=float(self.path.adjusted_regress[i]) if self.path else 1.0,
            worth_pass=float(self.path.worth_pass[i]) if self.path else 1.0,
            level_regress=level_r,
            level_pass=level_p,
            alpha=self.alpha,
            beta=self.beta,
            suspects=int((self.weights > 0).sum()),
            df=df,
            detectable=self._detectable(i, suspect, se, n) if tests else None,
            needed=self._needed(i, suspect, gap, se * math.sqrt(n)) if tests and not word else None,
            assumption=ASSUMPTIONS[self.design.arms],
            warnings=_warnings(se, n, self.design),
        )

    def _share(self, i: int) -> float:
        return self.alpha * float(self.weights[i] / self.weights.sum())

    def _levels(self, i: int, n: int) -> tuple[float, float]:
        k = self.design.looks.index(n) if n in self.design.looks else 0
        rising, flat = look_table(self.design, "rising"), look_table(self.design, "flat")
        return rising.level(k, self._share(i)), flat.level(k, self.beta)

    def _word(self, i: int) -> tuple[ConfirmWord | None, int | None]:
        if self.path is None:
            return None, None
        if self.path.regress_at[i] >= 0:
            return "REGRESS", self.looked[int(self.path.regress_at[i])]
        if self.path.pass_at[i] >= 0:
            return "PASS", self.looked[int(self.path.pass_at[i])]
        return None, None

    def _detectable(self, i: int, suspect: Suspect, se: float, n: int) -> float | None:
        last, table = self.design.looks[-1], look_table(self.design, "rising")
        level = table.level(len(self.design.looks) - 1, self._share(i))
        shift = noncentrality(self.design.df(last), level) * se * math.sqrt(n / last)
        return math.expm1(math.log1p(suspect.tolerance) + shift) if shift < math.inf else None

    def _needed(self, i: int, suspect: Suspect, gap: float, spread: float) -> int | None:
        """Pairs whose mean alone would decide on one side or the other."""
        level, passing = self._levels(i, self.design.looks[-1])
        over, under = gap - math.log1p(suspect.tolerance), math.log1p(suspect.detect) - gap

        def decides(n: int) -> bool:
            if n < self.design.looks[0]:
                return False
            error, df = spread / math.sqrt(n), self.design.df(n)
            sides = ((over, level), (under, passing))
            return any(room >= noncentrality(df, each) * error for room, each in sides)

        return first_that_decides(decides) if spread > EQUAL else None


ASSUMPTIONS: dict[Arms, str] = {
    "paired": "pairs of boots are independent, and the logs of their ratios normal",
    "pooled": "boots are independent, the logs of their values normal and equally spread",
}


def _tests(suspect: Suspect, n: int, design: Design) -> tuple[float, float]:
    candidate, reference = _arms(suspect, n)
    regress, passes = look_tests(
        candidate,
        reference,
        design=design,
        tolerance=suspect.tolerance,
        detect=suspect.detect,
        own=_own_squares(suspect, design),
    )
    return float(regress), float(passes)


def _gap(suspect: Suspect, n: int, design: Design) -> tuple[float, float, int]:
    candidate, reference = _arms(suspect, n)
    if n == 0:
        return 0.0, 0.0, 0
    if n == 1:
        return float(candidate[0] - reference[0]), 0.0, 0
    gap, se = gap_and_error(candidate, reference, design, _own_squares(suspect, design))
    return float(gap), float(se), design.df(n)


def _arms(suspect: Suspect, n: int) -> tuple[Numbers, Numbers]:
    np = numpy()
    return np.array(suspect.candidate[:n]), np.array(suspect.reference[:n])


def _own_squares(suspect: Suspect, design: Design) -> float:
    if not design.own_df:
        return 0.0
    own = suspect.own[: design.own_df + 1]
    if len(own) <= design.own_df:
        raise InvalidMeasurement(
            f"{len(own)} screened boots are handed in for {design.own_df} degrees of freedom.",
            "n boots know their spread with n - 1 degrees of freedom.",
            "Hand in the boots that were screened, or a design without them.",
        )
    logarithms(own)
    return float(numpy().var(own) * len(own))


def _bound(gap: float, se: float, df: int, level: float) -> float:
    return math.exp(gap + float(special().stdtrit(df, 1 - level)) * se)


def _warnings(se: float, n: int, design: Design) -> tuple[str, ...]:
    if n < design.looks[0]:
        return (f"the first look is after {design.looks[0]} pairs of boots, and there are {n}",)
    return (
        () if se > EQUAL else ("all boots are equal, so no noise was seen and nothing is tested",)
    )


def _pairs_of(suspects: Mapping[str, Suspect]) -> int:
    counts = set()
    for each in some(list(suspects.values()), "suspect"):
        counts |= {len(each.candidate), len(each.reference)}
        for arm in (each.candidate, each.reference):
            if arm:
                logarithms(arm)
        _check(each)
    if len(counts) > 1:
        raise InvalidMeasurement(
            f"Suspects have {', '.join(map(str, sorted(counts)))} boots an arm.",
            "All suspects ride on the same boots, and each boot has its partner.",
            "Find out where a gate lacks a boot; a pair with one arm is no pair.",
        )
    return counts.pop()


def _check(suspect: Suspect) -> None:
    if not 0 <= suspect.tolerance < suspect.detect < math.inf:
        raise UsageError(
            f"tolerance is {suspect.tolerance!r} and detect {suspect.detect!r}.",
            "A slow-down within tolerance is no regression; one of detect must be seen.",
            "Give a tolerance of 0 or more, and a larger detect.",
        )
