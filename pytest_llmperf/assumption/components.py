"""Where the noise comes from: the variance that turns, boots and sessions each add.

What can be seen with how many of each is in ``sizing``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec

from pytest_llmperf.assumption.arrays import Numbers, numpy, special
from pytest_llmperf.assumption.boots import history_of
from pytest_llmperf.assumption.comparison import logarithms, positive, scipy_stats

_CAREFUL = 0.35
_FEWEST_TURNS = 5


class BootValue(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One stored boot of a gate."""

    log: float
    """Its statistic, as in ``boots``."""
    turns: int | None = None
    error: float | None = None
    """The statistic's standard error by the boot's own turns, as ``quantile_error`` gives it;
    ``None`` where only the statistic is stored."""


class Component(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A variance of logs, with the degrees of freedom that it is known by (Satterthwaite)."""

    variance: float
    df: float

    @property
    def sd(self) -> float:
        """Its root: 0.03 is 3 %."""
        return math.sqrt(self.variance)


class Components(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Components of a gate's variance. ``None``: what is stored cannot tell it."""

    turn: Component | None
    """Of one turn: a boot's statistic over n turns has it over n."""
    boot: Component | None
    """Of one boot, beside its turns. Where ``turn`` is ``None`` it holds the turns' share too."""
    session: Component | None
    """Of one session, beside its boots. Where ``boot`` is ``None`` it holds their share too."""
    sessions: int
    boots: float
    """Boots a session, their harmonic mean."""
    turns: float | None
    """Turns a boot, their harmonic mean."""


def components(history: Sequence[Sequence[BootValue]]) -> Components:
    """Estimate the components from stored sessions by the method of moments.

    Turns from the boots' own errors; boots from the scatter of boots within sessions, less the
    turns' share; sessions from the scatter of session means, less their boots' share. A difference
    under zero is zero. Degrees of freedom of a difference by Satterthwaite (1946).

    :raises InvalidMeasurement: there is no session, one is empty, or a value is no logarithm.
    """
    past = history_of([[boot.log for boot in session] for session in history])
    stored = [boot for session in history for boot in session]
    turn, noise, turns = _turn(stored)
    within = Component(float(past.within), past.within_df) if past.within_df else None
    between = Component(float(past.variance), past.sessions - 1) if past.sessions > 1 else None
    return Components(
        turn=turn,
        boot=within and less(within, noise),
        session=between and less(between, within and scaled(within, 1 / past.boots)),
        sessions=past.sessions,
        boots=past.boots,
        turns=turns,
    )


def quantile_error(turns: Sequence[float], p: float) -> float | None:
    """Give the standard error of the log of a boot's quantile (Maritz and Jarrett).

    It takes turns as independent; where they are not, the excess is found among the boots.
    ``None`` with fewer than five turns.

    :raises InvalidMeasurement: there are no turns, or one is not positive and finite.
    """
    logs = numpy().log(positive(turns))
    if len(logs) < _FEWEST_TURNS:
        return None
    return float(scipy_stats().mstats.mjci(logs, prob=[p])[0])


def less(whole: Component, part: Component | None) -> Component:
    """Take a part from a variance; never less than nothing."""
    if part is None:
        return whole
    rest = max(whole.variance - part.variance, 0.0)
    return Component(rest, float(satterthwaite(whole, part, rest)))


def scaled(one: Component, factor: float) -> Component:
    """Multiply a variance; it is known as well as before."""
    return Component(one.variance * factor, one.df)


def added(*parts: Component | None) -> Component:
    """Add variances; degrees of freedom by Satterthwaite."""
    known = [part for part in parts if part is not None]
    total = math.fsum(part.variance for part in known)
    return Component(total, float(satterthwaite(*known, total)))


def satterthwaite(*parts: Any) -> float:  # noqa: ANN401 - components, then their total
    """Give the degrees of freedom of a sum or difference: total² over the sum of parts² / df.

    A total of nothing is known no better than its least known part.
    """
    *known, total = parts
    spread = math.fsum(part.variance**2 / part.df for part in known if part.df)
    if total <= 0 or spread <= 0:
        return min((part.df for part in known), default=0.0)
    return float(total) ** 2 / spread


def careful(variance: Numbers, df: Numbers) -> Numbers:
    """Give the variance's upper bound at 65 %, by the chi-squared distribution.

    What is planned by a variance that may be larger promises too much half of the time.
    """
    np = numpy()
    known = np.maximum(df, 1e-9)
    return variance * known / (2 * special().gammaincinv(known / 2, _CAREFUL))


def pair_component(log_ratios: Sequence[float]) -> Component | None:
    """Give the variance of resident pairs from A/A pairs; ``None`` with fewer than two.

    :raises InvalidMeasurement: there are none, or a value is no logarithm.
    """
    logs = logarithms(log_ratios)
    if len(logs) < 2:  # noqa: PLR2004 - one has no spread
        return None
    return Component(float(numpy().var(logs, ddof=1)), len(logs) - 1)


def _turn(stored: Sequence[BootValue]) -> tuple[Component | None, Component | None, float | None]:
    """The variance of one turn, its share in a boot's statistic, and turns a boot."""
    known = [
        (each.error**2, each.turns)
        for each in stored
        if each.error is not None and each.turns is not None
    ]
    if len(known) < len(stored) or not known:
        return None, None, None
    df = float(sum(count - 1 for _, count in known))
    turns = len(known) / math.fsum(1 / count for _, count in known)
    share = math.fsum(variance for variance, _ in known) / len(known)
    return Component(share * turns, df), Component(share, df), turns
