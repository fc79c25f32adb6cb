"""What machines do to measurements: sessions, boots and turns drawn at random, on the log scale.

Nothing is decided here; that is ``trial``, which calls the functions that judge a real session.
Model: log y = gate and arm + session + boot + drift + turn. Of a session's and a boot's variance a
part is common to all gates, since they ride on the same machine and the same process.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]

_POOL = 50_000
_SPIKE = 1.5


@dataclass(frozen=True, kw_only=True)
class Noise:
    """One scenario. Standard deviations are of logs, so that 0.03 is 3 %."""

    name: str
    boot_sd: float = 0.03
    session_sd: float = 0.02
    turn_sd: float = 0.08
    common: float = 0.7
    """Share of the variance of sessions and boots that all gates have in common."""
    autocorrelation: float = 0.0
    """Of successive turns."""
    spikes: float = 0.0
    """Share of turns that take half as long again."""
    bad_boots: float = 0.0
    """Share of boots that are 10 % slow, at all gates."""
    drift_sd: float = 0.0
    """Of a machine that wanders over minutes: an autoregression from boot to boot."""
    drift_memory: float = 0.7
    is_resident: bool = False
    """Whether both arms are up at once, so that drift is common to a pair of boots."""

    @property
    def pair_sd(self) -> float:
        """Of the log ratio of a resident pair; 5 % where boots scatter by 3 %."""
        return self.boot_sd * 5 / 3


class Shape(NamedTuple):
    """How much is measured."""

    gates: int = 20
    boots: int = 3
    turns: int = 100
    sessions: int = 10
    pairs: int = 6


class Drawn(NamedTuple):
    """Per-boot logs of many sessions; the gates are on the second axis."""

    past: Array
    """Trials, gates, stored sessions, boots."""
    now: Array
    """Trials, gates, boots."""
    candidate: Array
    """Trials, gates, pairs."""
    reference: Array


def scenarios(base: Noise, drift: float = 0.10) -> tuple[Noise, ...]:
    """The scenarios of the promises, around a base."""
    return (
        replace(base, name="base"),
        replace(base, name="autocorrelation", autocorrelation=0.6),
        replace(base, name="spikes", spikes=0.02),
        replace(base, name="bad boots", bad_boots=0.05),
        replace(base, name="drift, resident pairs", drift_sd=drift, is_resident=True),
        replace(base, name="drift, alternating boots", drift_sd=drift),
    )


def turns(noise: Noise, boots: int, count: int, rng: np.random.Generator) -> Array:
    """Draw boots by turns of log latencies without anything but the turns' own noise."""
    logs = rng.standard_normal((boots, count))
    if noise.autocorrelation:
        keep = noise.autocorrelation
        for i in range(1, count):
            logs[:, i] = keep * logs[:, i - 1] + (1 - keep**2) ** 0.5 * logs[:, i]
    logs *= noise.turn_sd
    if noise.spikes:
        logs += np.log(_SPIKE) * (rng.random(logs.shape) < noise.spikes)
    return logs


def medians(noise: Noise, count: int, rng: np.random.Generator) -> Array:
    """Draw a pool of per-boot log medians, by the estimator that the gates use."""
    parts = [turns(noise, _POOL // 10, count, rng) for _ in range(10)]
    return np.concatenate(
        [np.quantile(part, 0.5, axis=1, method="median_unbiased") for part in parts]
    )


class Machine:
    """Draws sessions of one scenario."""

    def __init__(self, noise: Noise, shape: Shape, rng: np.random.Generator) -> None:
        self.noise, self.shape, self.rng = noise, shape, rng
        self._pool = medians(noise, shape.turns, rng)

    def sessions(self, count: int) -> Drawn:
        """Draw trials without any effect of the candidate."""
        noise, shape = self.noise, self.shape
        stored = self._boots((count, shape.sessions), shape.boots, noise.boot_sd)
        stored += self._shared((count, shape.sessions), noise.session_sd)[..., None]
        now = self._boots((count,), shape.boots, noise.boot_sd)
        session = self._shared((count,), noise.session_sd)
        arms = self._pairs(count, shape.pairs) + session[..., None, None]
        return Drawn(
            np.moveaxis(stored, 1, 2) if stored.ndim > 3 else stored,  # noqa: PLR2004 - gates to the second axis
            now + session[..., None],
            arms[..., 0],
            arms[..., 1],
        )

    def aa_variance(self, count: int, pairs: int) -> Array:
        """Variance of the log ratios of so many pairs of one unchanged engine: trials, gates."""
        arms = self._pairs(count, pairs)
        return np.asarray((arms[..., 0] - arms[..., 1]).var(axis=-1, ddof=1))

    def runs(self, count: int) -> tuple[Array, Array]:
        """One stored run and one new run, turn by turn: trials, gates, turns."""
        stored, new = (self._run(count) for _ in range(2))
        return stored, new

    def _run(self, count: int) -> Array:
        shape, noise = self.shape, self.noise
        drawn = turns(noise, count * shape.gates, shape.turns, self.rng)
        level = self._shared((count,), noise.session_sd) + self._shared((count,), noise.boot_sd)
        level += (self._common((count,), 1))[..., 0][:, None]
        return np.asarray(drawn.reshape(count, shape.gates, shape.turns) + level[..., None])

    def _pairs(self, count: int, pairs: int) -> Array:
        """Boots of both arms: trials, gates, pairs, arm."""
        n, noise = pairs, self.noise
        if not noise.is_resident:
            in_order = self._boots((count,), 2 * n, noise.boot_sd).reshape(count, -1, n, 2)
            in_order[:, :, 1::2] = in_order[:, :, 1::2, ::-1].copy()
            return in_order
        turn_variance = float(np.var(self._pool))
        arm_sd = max(noise.pair_sd**2 / 2 - turn_variance, 0.0) ** 0.5
        still = replace(noise, drift_sd=0.0)
        arms = np.stack([self._boots((count,), n, arm_sd, still) for _ in "cr"], axis=-1)
        return arms + self._drift((count,), n)[:, None, :, None]

    def _boots(
        self, lead: tuple[int, ...], boots: int, sd: float, noise: Noise | None = None
    ) -> Array:
        """Per-boot logs: lead, gates, boots."""
        noise = noise or self.noise
        full = (*lead, self.shape.gates, boots)
        logs = self._pool[self.rng.integers(0, self._pool.size, full)]
        logs += np.moveaxis(self._shared((*lead, boots), sd), -1, -2)
        return np.asarray(logs + self._common(lead, boots, noise)[..., None, :])

    def _common(self, lead: tuple[int, ...], boots: int, noise: Noise | None = None) -> Array:
        """What a boot does to all gates alike, as drift and bad boots do: lead, boots."""
        noise = noise or self.noise
        common = self._drift(lead, boots) if noise.drift_sd else np.zeros((*lead, boots))
        common += np.log(1.10) * (self.rng.random(common.shape) < noise.bad_boots)
        return np.asarray(common)

    def _shared(self, lead: tuple[int, ...], sd: float) -> Array:
        """Effects of which a part is common to all gates: lead, gates."""
        both = (
            self.rng.standard_normal((*lead, 1)),
            self.rng.standard_normal((*lead, self.shape.gates)),
        )
        share = self.noise.common
        return np.asarray(sd * (share**0.5 * both[0] + (1 - share) ** 0.5 * both[1]))

    def _drift(self, lead: tuple[int, ...], boots: int) -> Array:
        """A stationary autoregression over successive boots: lead, boots."""
        steps = self.rng.standard_normal((*lead, boots))
        keep = self.noise.drift_memory
        for i in range(1, boots):
            steps[..., i] = keep * steps[..., i - 1] + (1 - keep**2) ** 0.5 * steps[..., i]
        return np.asarray(self.noise.drift_sd * steps)
