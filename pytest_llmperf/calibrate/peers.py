"""What other gates' rules do on the same noise: their false alarms, and what they find.

Each rule is written from its documentation as a function of two runs. Ours is in ``trial``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from pytest_llmperf.assumption.comparison import scipy_stats
from pytest_llmperf.calibrate.noise import Array, Machine, Noise, Shape
from pytest_llmperf.calibrate.trial import Flags

PeerRule = Callable[[Array, Array], Flags]
"""Stored run and new run, latencies with turns on the last axis, to whether the gate fails."""

_CHUNK = 100
_USUAL = 0.05


class Peer(NamedTuple):
    """One rule's counts on one scenario."""

    name: str
    false_alarm: float
    """A gate, at no change."""
    false_session: float
    """A session of gates, at no change."""
    found: float
    """A gate, at +10 %."""


def mean_over_ten_percent(stored: Array, new: Array) -> Flags:
    """pytest-benchmark: ``--benchmark-compare-fail=mean:10%``, 100 rounds."""
    return np.asarray(new.mean(axis=-1) > 1.10 * stored.mean(axis=-1))


def mann_whitney(stored: Array, new: Array) -> Flags:
    """Mann-Whitney on 100 requests of one boot each, one-sided at 1 %."""
    test = scipy_stats().mannwhitneyu
    p = test(new, stored, axis=-1, alternative="greater", method="asymptotic").pvalue
    return np.asarray(p < 0.01)  # noqa: PLR2004 - as the docstring says


def asv_like(stored: Array, new: Array) -> Flags:
    """asv: Mann-Whitney at 0.002 and a factor of 1.1, 20 samples."""
    stored, new = stored[..., :20], new[..., :20]
    p = scipy_stats().mannwhitneyu(new, stored, axis=-1, method="asymptotic").pvalue
    ratio = np.median(new, axis=-1) / np.median(stored, axis=-1)
    return np.asarray((p < 0.002) & (ratio > 1.1))  # noqa: PLR2004 - as the docstring says


def criterion_like(stored: Array, new: Array) -> Flags:
    """criterion: t test at 5 % and a noise threshold of 1 %, 100 samples of one process."""
    p = scipy_stats().ttest_ind(new, stored, axis=-1, equal_var=False).pvalue
    return np.asarray((p < _USUAL) & (new.mean(axis=-1) > 1.01 * stored.mean(axis=-1)))


def benchstat_like(stored: Array, new: Array) -> Flags:
    """benchstat: Mann-Whitney two-sided at 5 %, ``-count=10`` in one process; slower ones."""
    stored, new = stored[..., :10], new[..., :10]
    p = scipy_stats().mannwhitneyu(new, stored, axis=-1, method="asymptotic").pvalue
    return np.asarray((p < _USUAL) & (np.median(new, axis=-1) > np.median(stored, axis=-1)))


RULES: dict[str, PeerRule] = {
    "pytest-benchmark, compare-fail mean:10%": mean_over_ten_percent,
    "Mann-Whitney on requests, 1 %": mann_whitney,
    "asv-like": asv_like,
    "criterion-like": criterion_like,
    "benchstat-like, one process": benchstat_like,
}


def peers(noise: Noise, *, sessions: int, seed: int, shape: Shape) -> list[Peer]:
    """Judge one new run against one stored run, by every rule."""
    machine = Machine(noise, shape, np.random.default_rng(seed))
    alarms: dict[str, list[Flags]] = {name: [] for name in RULES}
    finds: dict[str, list[Flags]] = {name: [] for name in RULES}
    for done in range(0, sessions, _CHUNK):
        stored, new = (np.exp(run) for run in machine.runs(min(_CHUNK, sessions - done)))
        for name, rule in RULES.items():
            alarms[name].append(rule(stored, new))
            finds[name].append(rule(stored, 1.10 * new))
    return [
        _peer(name, np.concatenate(alarms[name]), np.concatenate(finds[name])) for name in RULES
    ]


def _peer(name: str, alarms: Flags, finds: Flags) -> Peer:
    every = float(alarms.any(axis=1).mean())
    return Peer(name, float(alarms.mean()), every, float(finds.mean()))
