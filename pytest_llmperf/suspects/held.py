"""What a gate is held against, what waits for fresh boots, and how a boot counts as slow.

What is made of it is in ``screening`` and ``confirming``.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from pytest_llmperf.assumption.boots import log_quantile
from pytest_llmperf.assumption.looks import Arms
from pytest_llmperf.evidence import Measured
from pytest_llmperf.gate import Gate
from pytest_llmperf.run import Levels, Run
from pytest_llmperf.units import percent, quantile_name

SCOPE = "this build"


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
    return tuple(slow(run, boot, p) for boot in run.boots)


def claim_of(run: Run, p: float, detect: float, reference: str) -> str:
    """Word what is claimed: that the number did not get worse than the reference's."""
    what = f"{quantile_name(p)} of {run.denominator.name}"
    return f"{what} not worse than {reference} by {percent(detect)}"


def slow(run: Run, boot: Measured, p: float) -> float:
    """One boot's log quantile, with the sign that makes more worse."""
    one = Run([boot], denominator=run.denominator)
    sign = -1.0 if run.denominator.higher_is_better else 1.0
    return sign * log_quantile(one.values[0], 1 - p if sign < 0 else p)
