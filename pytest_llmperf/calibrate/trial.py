"""Many sessions judged at once, by the very functions that judge a real one.

The rules are in ``assumption``; here they are only called on arrays. What is drawn is in ``noise``,
what is promised of the counts in ``promises``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pytest_llmperf.assumption import confirm, path, screen
from pytest_llmperf.assumption.arrays import squares
from pytest_llmperf.assumption.boots import past_of, session_of
from pytest_llmperf.assumption.comparison import ALPHA, BETA
from pytest_llmperf.assumption.looks import Design
from pytest_llmperf.calibrate.noise import Array, Drawn

Flags = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Rule:
    """The settings of a gate session."""

    design: Design
    alpha: float = ALPHA
    beta: float = BETA
    alpha_screen: float = screen.ALPHA_SCREEN
    tolerance: float = confirm.TOLERANCE
    detect: float = 0.10
    is_weighted: bool = True
    false_suspects: int = 0
    """Gates, after the first, that are suspected whatever they measured."""


class Outcome(NamedTuple):
    """What was said: trials by gates, and the pairs of boots that a trial took."""

    regress: Flags
    passed: Flags
    screened: Flags
    """Passed by the screen."""
    suspect: Flags
    pairs: Array


def judge(drawn: Drawn, rule: Rule, rng: np.random.Generator) -> Outcome:
    """Screen each gate, then confirm those that did not pass, as a session does."""
    now, past = session_of(drawn.now), past_of(session_of(drawn.past))
    gap, se = screen.screen_gap(now, past)
    p_suspect, p_pass = screen.screen_tests(gap, se, past.sessions - 1, rule.detect)
    forced = slice(1, 1 + rule.false_suspects)
    p_suspect[:, forced] = rule.alpha_screen * rng.random(p_suspect[:, forced].shape)
    suspect, screened = screen.screen_words(
        p_suspect, p_pass, rule.alpha_screen, rule.beta * screen.BETA_SHARE
    )
    weights = screen.suspicion(p_suspect) if rule.is_weighted else np.ones(p_suspect.shape)
    weights = np.where(screened, 0.0, weights)
    said = _confirm(drawn, rule, weights)
    decided = np.maximum(said.regress_at, said.pass_at)
    looks = np.array([0, *rule.design.looks])
    last = np.where(decided >= 0, decided + 1, len(looks) - 1)
    pairs = looks[np.where(screened, 0, last).max(axis=1)]
    return Outcome(said.regress_at >= 0, screened | (said.pass_at >= 0), screened, suspect, pairs)


def _confirm(drawn: Drawn, rule: Rule, weights: Array) -> path.Path:
    own = squares(drawn.now) if rule.design.own_df else 0.0
    tests = [
        path.look_tests(
            drawn.candidate[..., :n],
            drawn.reference[..., :n],
            design=rule.design,
            tolerance=rule.tolerance,
            detect=rule.detect,
            own=own,
        )
        for n in rule.design.looks
    ]
    return path.follow(
        [p for p, _ in tests],
        [p for _, p in tests],
        weights,
        design=rule.design,
        alpha=rule.alpha,
        beta=rule.beta * confirm.CONFIRM_SHARE,
    )


def slowed(drawn: Drawn, effect: Array | float) -> Drawn:
    """Slow the candidate by a log effect: a number, or one for each gate, or for each trial's."""
    by_boot = np.asarray(effect)[..., None]
    return drawn._replace(now=drawn.now + by_boot, candidate=drawn.candidate + by_boot)
