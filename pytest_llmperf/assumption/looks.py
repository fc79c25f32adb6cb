"""How much evidence a look may take when the data are looked at several times.

Which tests are looked at is in ``confirm``. The tables hold the distribution, with no change in
truth, of the smallest p-value over the looks, each divided by its look's share of the level: what
must be seen to reject at any total level follows, and how much a path seen so far is worth.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from pytest_llmperf.assumption.arrays import Numbers, numpy, special, squares
from pytest_llmperf.errors import UsageError

Arms = Literal["paired", "pooled"]
"""How two arms of boots are compared: pair by pair (df n - 1), or arm by arm (df 2n - 2)."""

LOOKS = (3, 4, 5, 6)
"""Pairs of boots after which the data are looked at."""

FEWEST = LOOKS[0]

SHIPPED = Path(__file__).with_name("looks.json")

LEVELS = (1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 3.5e-3, 5e-3, 0.01, 0.015, 0.025, 0.05, 0.1, 0.2)
"""Total levels at which the tables are calibrated."""

_MOST_OWN_DF = 4
_LATE = 5.0
_CAREFUL = 2.0
_PATHS_AT_ONCE = 1_000_000
_SEED = 20_240_229
_CHUNK = 100_000


class Design(NamedTuple):
    """A sequence of looks at t tests."""

    arms: Arms
    own_df: int = 0
    """Degrees of freedom of the variance that boots before the first look bring, pooled only."""
    looks: tuple[int, ...] = LOOKS

    def df(self, pairs: int) -> int:
        """Degrees of freedom of the t test after so many pairs."""
        return pairs - 1 if self.arms == "paired" else 2 * pairs - 2 + self.own_df

    @property
    def name(self) -> str:
        """Its key in the shipped tables."""
        return f"{self.arms}+{self.own_df} at {','.join(map(str, self.looks))}"


def design_of(arms: Arms, *, screened: int = 0, pairs: int = LOOKS[-1]) -> Design:
    """Give the design of a confirmation of at most so many pairs, looked at after each from 3 on.

    ``screened`` is the number of boots that the session screened; pooled arms take the spread of
    the first five of them.

    :raises UsageError: fewer pairs than three.
    """
    own_df = min(max(screened - 1, 0), _MOST_OWN_DF) if arms == "pooled" else 0
    design = Design(arms, own_df, tuple(range(FEWEST, pairs + 1)))
    _check(design)
    return design


class LookTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The distribution of the smallest weighted p-value of a design, at no change."""

    shares: tuple[float, ...]
    """Of each look; they sum to 1."""
    reaches: tuple[float, ...]
    """For each of ``LEVELS``: the value that is reached with that chance or less."""

    def level(self, look: int, total: float) -> float:
        """The p-value that rejects at one look (by its index) under a total level."""
        return self.shares[look] * float(self._reach(total))

    def worth(self, smallest: Numbers) -> Numbers:
        """Turn the smallest weighted p-value so far into a p-value that is valid at any look.

        It is the chance of seeing as small a one by the last look (a repeated p-value: Jennison
        and Turnbull, Group Sequential Methods, ch. 9). Outside of the table Bonferroni's bound.
        """
        np = numpy()
        reaches = np.log(self.reaches)
        at = np.log(np.maximum(smallest, 1e-300))
        inside = np.exp(np.interp(at, reaches, np.log(LEVELS)))
        bound = np.minimum(smallest, 1.0)
        return np.where(at > reaches[-1], bound, np.minimum(inside, bound))

    def _reach(self, total: float) -> Numbers:
        np = numpy()
        if not LEVELS[0] <= total <= LEVELS[-1]:
            return total
        return np.exp(np.interp(np.log(total), np.log(LEVELS), np.log(self.reaches)))


class Tables(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Tables as they are shipped, and how they were made."""

    seed: int
    paths: int
    levels: tuple[float, ...]
    rising: dict[str, LookTable]
    flat: dict[str, LookTable]


def rising(looks: Sequence[int]) -> tuple[float, ...]:
    """Shares that grow with the look, so that little of the level is spent on few boots."""
    raw = [(n / looks[-1]) ** _LATE for n in looks]
    return tuple(each / sum(raw) for each in raw)


def flat(looks: Sequence[int]) -> tuple[float, ...]:
    """Equal shares."""
    return tuple(1 / len(looks) for _ in looks)


@cache
def look_table(design: Design, spending: Literal["rising", "flat"] = "rising") -> LookTable:
    """Give the table of a design: the shipped one, else one calibrated here (a second or two).

    :raises UsageError: the looks are not ascending, or there are fewer than two boots an arm.
    """
    _check(design)
    tables = _shipped().rising if spending == "rising" else _shipped().flat
    if design.name in tables:
        return tables[design.name]
    return calibrate(design, spending, seed=_SEED, paths=_PATHS_AT_ONCE)


def calibrate(
    design: Design, spending: Literal["rising", "flat"], *, seed: int, paths: int
) -> LookTable:
    """Simulate a design at no change and read off what is reached at each of ``LEVELS``.

    t statistics do not depend on the scale, so that standard normal boots stand for all normal
    ones. Each value is lowered by two standard errors of its simulation, and is never under
    Bonferroni's.
    """
    np = numpy()
    if len(design.looks) == 1:
        return LookTable((1.0,), LEVELS)
    shares = (rising if spending == "rising" else flat)(design.looks)
    rng = np.random.default_rng(seed)
    sizes = [min(_CHUNK, paths - done) for done in range(0, paths, _CHUNK)]
    found = np.sort(np.concatenate([_smallest(design, shares, rng, size) for size in sizes]))
    careful = [level - _CAREFUL * (level * (1 - level) / paths) ** 0.5 for level in LEVELS]
    reached = [float(found[max(0, int(each * paths) - 1)]) for each in careful]
    kept = [max(level, value) for level, value in zip(LEVELS, reached, strict=True)]
    return LookTable(shares, tuple(float(f"{value:.5g}") for value in kept))


def _smallest(design: Design, shares: Sequence[float], rng: Numbers, paths: int) -> Numbers:
    """The smallest weighted p-value of each of many paths at no change."""
    np = numpy()
    most = design.looks[-1]
    first, second = rng.standard_normal((2, paths, most))
    own = 2 * rng.standard_gamma(design.own_df / 2, paths) if design.own_df else 0.0
    smallest = np.full(paths, np.inf)
    for n, share in zip(design.looks, shares, strict=True):
        gap, se = gap_and_error(first[:, :n], second[:, :n], design, own)
        p = special().stdtr(design.df(n), -gap / se)
        smallest = np.minimum(smallest, p / share)
    return smallest


def gap_and_error(
    candidate: Numbers, reference: Numbers, design: Design, own: Numbers = 0.0
) -> tuple[Numbers, Numbers]:
    """Give the mean gap of two arms and its standard error, over the last axis.

    ``own`` is a sum of squares with ``design.own_df`` from other boots of the same session; their
    mean does not enter, and under normality it is independent of the squares.
    """
    np = numpy()
    gap, n = candidate - reference, candidate.shape[-1]
    centre = gap.mean(axis=-1)
    if design.arms == "paired":
        return centre, np.sqrt(squares(gap) / (n - 1) / n)
    total = squares(candidate) + squares(reference) + own
    return centre, np.sqrt(total / design.df(n) * 2 / n)


@cache
def _shipped() -> Tables:
    return msgspec.json.decode(SHIPPED.read_bytes(), type=Tables)


def _check(design: Design) -> None:
    looks = design.looks
    if not looks or list(looks) != sorted(set(looks)) or looks[0] < 2:  # noqa: PLR2004 - two have a spread
        raise UsageError(
            f"the looks are {looks!r}.",
            "Looks are counts of pairs of boots in ascending order, the first at least 2.",
            "Plan three pairs or more; looks at 3, 4, 5 and 6 are the default.",
        )
