"""What a comparison is: a claim about a boundary with its two levels, and what was found.

Also the checks that each comparison makes of its input. The tests are in ``ranks`` and ``student``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec

from pytest_llmperf.errors import InvalidMeasurement, UsageError

Replicate = Literal["turn", "block", "window", "boot", "session"]
Relation = Literal["at most", "at least"]

ALPHA = 0.01
"""Default chance of a false REGRESS at the boundary."""

BETA = 0.05
"""Default chance of a false PASS at the boundary."""

POWER = 0.90
"""The chance of deciding at which ``detectable`` and ``needed`` are stated."""

_MOST = 10_000
"""A plan of more replicates than this is no plan; ``needed`` is then ``None``."""

_LARGEST_LOG = 700.0

T = TypeVar("T")


class Comparison(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An estimate held against a boundary. ``None`` means that a thing cannot be said."""

    relation: Relation
    """The claim: the true value is at most, or at least, the boundary."""
    boundary: float
    estimate: float
    low: float | None
    high: float | None
    confidence: float
    """Of the interval: one less ``alpha`` (the end where it gets worse) less ``beta``."""
    replicate: Replicate
    n: int
    """Replicates in the test, of both arms together where they are not paired."""
    alpha: float
    beta: float
    p_regress: float | None
    """One-sided p-value against "the claim holds"."""
    p_pass: float | None
    """One-sided p-value against "the claim does not hold"."""
    detectable: float | None = None
    """Relative change for the worse from the boundary that ``n`` finds with power 90 %."""
    needed: int | None = None
    """Replicates, these included, that would decide with power 90 % at the estimate seen."""
    assumption: str
    warnings: tuple[str, ...] = ()


class Claim(NamedTuple):
    """What is asserted, with the levels of its two tests."""

    relation: Relation
    boundary: float
    alpha: float
    beta: float

    def sides(self, first: T, second: T) -> tuple[T, T]:
        """Turn (worse, better) into (over, under) the boundary, or back."""
        return (first, second) if self.relation == "at most" else (second, first)

    def comparison(self, **found: Any) -> Comparison:  # noqa: ANN401 - the struct checks them
        """Join the claim with what was found."""
        confidence = 1 - self.alpha - self.beta
        return Comparison(**self._asdict(), confidence=confidence, **found)


def claimed(relation: Relation, boundary: float, alpha: float, beta: float) -> Claim:
    """Check a claim.

    :raises UsageError: a level is not between 0 and 0.5, or the boundary not positive and finite.
    """
    for name, level in (("alpha", alpha), ("beta", beta)):
        if not 0 < level < 0.5:  # noqa: PLR2004 - beyond it both tests could reject
            raise UsageError(
                f"{name} is {level!r}.",
                "A level is the chance of a wrong verdict: more than 0 and less than 0.5.",
                "Give 0.01 for one percent.",
            )
    if not 0 < boundary < math.inf:
        raise UsageError(
            f"the boundary is {boundary!r}.",
            "A limit or a floor is a positive finite number.",
            "Correct the limit that the assertion gives.",
        )
    return Claim(relation, boundary, alpha, beta)


def fraction(p: float) -> float:
    """Check a quantile.

    :raises UsageError: it is not between 0 and 1.
    """
    if not 0 < p < 1:
        raise UsageError(
            f"the quantile is {p!r}.",
            "A quantile lies between 0 and 1.",
            "Give 0.95 for p95.",
        )
    return p


def some(values: Sequence[T], noun: str) -> Sequence[T]:
    """Check that there is something.

    :raises InvalidMeasurement: there is nothing.
    """
    if len(values) == 0:
        raise InvalidMeasurement(
            f"There is no {noun} to compare.",
            f"The sequence of {noun}s is empty.",
            "Find out why nothing was measured; an empty sample has no verdict.",
        )
    return values


def finite(values: Sequence[float]) -> Sequence[float]:
    """Check that there are values, all of them numbers.

    :raises InvalidMeasurement: there are none, or one is NaN or infinite.
    """
    bad = [value for value in some(values, "value") if not math.isfinite(value)]
    if bad:
        raise _unusable(bad, values, "a finite number")
    return values


def logarithms(values: Sequence[float]) -> Sequence[float]:
    """Check that there are values, each the natural logarithm of a number.

    :raises InvalidMeasurement: there are none, or one is not finite or beyond any number.
    """
    bad = [value for value in some(values, "value") if not abs(value) <= _LARGEST_LOG]
    if bad:
        raise _unusable(bad, values, "the logarithm of a positive finite number")
    return values


def positive(values: Sequence[float]) -> Sequence[float]:
    """Check that there are values, all of them positive numbers.

    :raises InvalidMeasurement: there are none, or one is not positive and finite.
    """
    bad = [value for value in some(values, "value") if not 0 < value < math.inf]
    if bad:
        raise _unusable(bad, values, "a positive finite number")
    return values


def _unusable(bad: Sequence[float], values: Sequence[float], wanted: str) -> InvalidMeasurement:
    return InvalidMeasurement(
        f"{len(bad)} of {len(values)} values cannot be compared.",
        f"The first of them is {bad[0]!r}; a value must be {wanted}.",
        "Find out how it was measured; it is not dropped, for that would change the sample.",
    )


def first_that_decides(decides: Callable[[int], bool]) -> int | None:
    """The smallest count that decides, by doubling and halving; ``None`` beyond any plan."""
    high = 2
    while not decides(high):
        high *= 2
        if high > 2 * _MOST:
            return None
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if decides(middle) else (middle, high)
    return high


def scipy_stats() -> Any:  # noqa: ANN401 - a module
    """Import ``scipy.stats`` at the first comparison; a plain pytest run does not pay for it."""
    from scipy import stats  # noqa: PLC0415 - as the docstring says

    return stats
