"""What is promised, and whether the counts of simulated sessions hold it.

The counts come from ``trial`` on the noise of ``noise``; what peers' rules do on the same noise is
in ``peers``, and how it is all shown in ``page``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from pytest_llmperf.assumption.boots import past_of, session_of
from pytest_llmperf.assumption.comparison import scipy_stats
from pytest_llmperf.assumption.components import careful
from pytest_llmperf.assumption.looks import Design, design_of
from pytest_llmperf.assumption.sensitivity import Screening, gate_detectable
from pytest_llmperf.calibrate.noise import Array, Drawn, Machine, Noise, Shape
from pytest_llmperf.calibrate.trial import Flags, Outcome, Rule, judge, slowed

Sense = Literal["at most", "at least"]

BOUND = 0.95
"""Confidence of a bound (Clopper and Pearson, one-sided)."""

REFUTED = 0.999
"""Confidence at which counts refute a level that is met exactly; many such lines are counted."""

FALSE_RED = 0.01
FALSE_PASS = 0.05
INCONCLUSIVE = 0.10
POWER = 0.90

AA_PAIRS = 12
"""Pairs of one unchanged engine from which a resident pair's noise is known."""

_CHUNK = 1000
_HALF_PAIR = 2

Rate = tuple[str, Flags]


@dataclass(frozen=True)
class Promise:
    """One line of the report: a rate, its bound, and its limit where it is promised."""

    scenario: str
    what: str
    rate: float
    bound: float
    sense: Sense
    limit: float | None

    @property
    def is_kept(self) -> bool:
        """Whether the bound is on the right side; what is not promised is kept."""
        if self.limit is None:
            return True
        return self.bound <= self.limit if self.sense == "at most" else self.bound >= self.limit


@dataclass
class Tally:
    """Counts of one question over sessions; a session's gates are not independent."""

    shares: list[Array] = field(default_factory=list)

    def add(self, flags: Flags) -> None:
        """Count trials by gates, or trials."""
        self.shares.append(flags.reshape(len(flags), -1).mean(axis=1))

    @property
    def rate(self) -> float:
        """The share of all."""
        return float(np.concatenate(self.shares).mean())

    def bound(self, sense: Sense, confidence: float = BOUND) -> float:
        """Give the upper or lower bound, for as many independent trials as the scatter is worth.

        Korn and Graubard (1998): Clopper-Pearson with the effective sample size.
        """
        each = np.concatenate(self.shares)
        p, n = float(each.mean()), len(each)
        scatter = float(each.var()) / n
        worth = p * (1 - p) / scatter if scatter > 0 else float(n)
        hits = p * worth
        if sense == "at most":
            return (
                1.0 if p == 1 else float(scipy_stats().beta.ppf(confidence, hits + 1, worth - hits))
            )
        return (
            0.0 if p == 0 else float(scipy_stats().beta.ppf(1 - confidence, hits, worth - hits + 1))
        )

    def promise(
        self,
        scenario: str,
        what: str,
        sense: Sense,
        limit: float | None,
        *,
        is_refuted: bool = False,
    ) -> Promise:
        """Give the line of the report; a level that is met exactly stands until it is refuted."""
        bound = self.bound("at least", REFUTED) if is_refuted else self.bound(sense)
        return Promise(scenario, what, self.rate, bound, sense, limit)


@dataclass(frozen=True)
class Question:
    """An effect that is planted, and what is counted of it."""

    key: str
    what: str
    sense: Sense
    limit: float
    where: Literal["everywhere", "quiet", "plannable"] = "everywhere"
    """Promised in every scenario; where noise is base's or less; or where a plan can know the
    noise, which boots in a row cannot tell of a machine that wanders for longer."""
    is_refuted: bool = False
    """Whether it stands until the counts refute it: the level itself, met exactly at the edge."""


QUESTIONS = (
    Question("null red", "false red a session, no change", "at most", FALSE_RED),
    Question(
        "edge red",
        "false red a session, all gates slower by tolerance",
        "at most",
        FALSE_RED,
        is_refuted=True,
    ),
    Question("false pass", "false PASS a gate, +10 %", "at most", FALSE_PASS),
    Question("mde", "REGRESS at the printed detectable effect", "at least", POWER, "plannable"),
    Question("null undecided", "INCONCLUSIVE a gate, no change", "at most", INCONCLUSIVE, "quiet"),
    Question(
        "one of three +15", "REGRESS, +15 %, among two false suspects", "at least", POWER, "quiet"
    ),
    Question("three +15", "REGRESS, +15 %, three slower gates", "at least", POWER, "quiet"),
)

REPORTED = (
    ("one +10", "REGRESS, +10 %, one slower gate"),
    ("one of three +10", "REGRESS, +10 %, among two false suspects"),
    ("three +10", "REGRESS, +10 %, three slower gates"),
    ("all +10", "REGRESS, +10 %, all gates slower"),
    ("plain one of three +10", "the same among two false suspects, plain Holm"),
    ("null confirms", "sessions without a change that go to confirm"),
)


@dataclass(frozen=True)
class Held:
    """One scenario's promises and figures."""

    noise: Noise
    design: Design
    sessions: int
    promises: tuple[Promise, ...]
    null_pairs: float
    """Pairs of boots that a session without a change takes, on average."""
    detectable: float
    """The printed detectable effect, its median over histories."""

    @property
    def is_kept(self) -> bool:
        """Whether every promise is."""
        return all(each.is_kept for each in self.promises)


def design_for(noise: Noise, shape: Shape) -> Design:
    """Pair what is up at once; pool what alternates."""
    arms: Literal["paired", "pooled"] = "paired" if noise.is_resident else "pooled"
    return design_of(arms, screened=shape.boots, pairs=shape.pairs)


def hold(noise: Noise, *, sessions: int, seed: int, is_promised: bool, shape: Shape) -> Held:
    """Simulate one scenario and hold every promise against it.

    :param is_promised: whether power and INCONCLUSIVE are promised at this noise.
    """
    rng = np.random.default_rng(seed)
    machine, design = Machine(noise, shape, rng), design_for(noise, shape)
    tallies: dict[str, Tally] = {}
    pairs, seen = [], []
    for done in range(0, sessions, _CHUNK):
        drawn = machine.sessions(min(_CHUNK, sessions - done))
        printed = detectable(drawn, machine, design)
        seen.append(printed)
        for key, flags in answers(drawn, printed, design, rng):
            tallies.setdefault(key, Tally()).add(flags)
        pairs.append(judge(drawn, Rule(design=design), rng).pairs)
    return Held(
        noise,
        design,
        sessions,
        tuple(_promises(noise, tallies, is_promised=is_promised)),
        float(np.concatenate(pairs).mean()),
        float(np.median(np.concatenate(seen))),
    )


def answers(
    drawn: Drawn, printed: Array, design: Design, rng: np.random.Generator
) -> Iterator[Rate]:
    """Plant each effect in the same sessions, judge them, and give what is counted."""
    rule = Rule(design=design)
    gates = drawn.now.shape[1]

    def told(effect: Array | float, rule: Rule = rule) -> Outcome:
        return judge(slowed(drawn, effect), rule, rng)

    null, edge = told(0.0), told(np.log1p(rule.tolerance))
    yield "null red", np.asarray(null.regress.any(axis=1))
    yield "null undecided", ~(null.regress | null.passed)
    yield "null confirms", null.pairs > 0
    yield "edge red", np.asarray(edge.regress.any(axis=1))
    everywhere = told(np.log(1.10))
    yield "false pass", everywhere.passed
    yield "all +10", everywhere.regress
    own = np.zeros(drawn.now.shape[:2])
    own[:, 0] = np.log1p(printed)
    yield "mde", told(own).regress[:, 0]
    crowd = replace(rule, false_suspects=2)
    for percent in (10, 15):
        slower = np.log(1 + percent / 100) * (np.arange(gates) < np.array([[1], [3]]))
        yield f"one +{percent}", told(slower[0]).regress[:, 0]
        yield f"one of three +{percent}", told(slower[0], crowd).regress[:, 0]
        yield f"three +{percent}", told(slower[1]).regress[:, :3]
        plain = replace(crowd, is_weighted=False)
        yield f"plain one of three +{percent}", told(slower[0], plain).regress[:, 0]


def detectable(drawn: Drawn, machine: Machine, design: Design) -> Array:
    """Give the effect that the plan prints for the first gate, from each trial's own history."""
    if design.arms == "paired":
        variance, df = machine.aa_variance(len(drawn.now), AA_PAIRS)[:, 0], AA_PAIRS - 1
    else:
        stored = drawn.past[:, 0]
        variance = _HALF_PAIR * stored.var(axis=-1, ddof=1).mean(axis=-1)
        df = stored.shape[1] * (stored.shape[2] - 1)
    past = past_of(session_of(drawn.past[:, 0]))
    error = np.sqrt(past.variance * (1 + 1 / past.sessions))
    screening = Screening(error, past.sessions, drawn.now.shape[1])
    return np.asarray(gate_detectable(careful(variance, df), screening, design=design, detect=0.10))


def _promises(noise: Noise, tallies: dict[str, Tally], *, is_promised: bool) -> Iterator[Promise]:
    name = noise.name
    is_plannable = noise.is_resident or not noise.drift_sd
    where = {"everywhere": True, "quiet": is_promised, "plannable": is_plannable}
    for each in QUESTIONS:
        tally = tallies[each.key]
        limit = each.limit if where[each.where] else None
        yield tally.promise(name, each.what, each.sense, limit, is_refuted=each.is_refuted)
    for key, what in REPORTED:
        yield Promise(
            name, what, tallies[key].rate, tallies[key].bound("at least"), "at least", None
        )
