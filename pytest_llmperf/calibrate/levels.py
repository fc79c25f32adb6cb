"""How often the other tests are wrong where they should be wrong at most so often.

Those of screen and confirmation are in ``promises``; here are budgets, floors, the self-check,
creep and two modes, each by the function that judges a real session.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pytest_llmperf.assumption import ALPHA, BETA, Comparison, quantile_against_over_boots
from pytest_llmperf.assumption.arrays import squares, t_tail
from pytest_llmperf.assumption.borrow import ratio_against_borrowing
from pytest_llmperf.assumption.creep import ALPHA_CREEP, LATEST, creep_gap
from pytest_llmperf.assumption.instrument import ALPHA_SELF, self_check_p
from pytest_llmperf.assumption.modes import ALPHA_MODES, modes
from pytest_llmperf.assumption.ranks import few
from pytest_llmperf.calibrate.noise import Array, Noise, Shape, turns
from pytest_llmperf.calibrate.promises import Promise, Sense, Tally
from pytest_llmperf.calibrate.trial import Flags

_NIGHTS = 40
_FLOOR = 1.5
_P95 = 0.95
_Z95 = 1.6448536269514722
_INTERACTION = 0.01
_BLOCKS = 24
_TURNS = 30
_HALF = 0.5
_SLOWER = 1.10


def levels(base: Noise, *, trials: int, seed: int, shape: Shape) -> list[Promise]:
    """Simulate every test that is no screen and no confirmation, at its boundary."""
    rng = np.random.default_rng(seed)
    return [
        *_budget(base, trials // 10, shape, rng),
        *_floor(base, trials // 10, shape, rng),
        *_self_check(base, trials, rng),
        *_creep(base, trials, shape, rng),
        *_modes(base, trials // 10, rng),
        *_quick(base, trials, shape, rng),
    ]


def _budget(base: Noise, trials: int, shape: Shape, rng: np.random.Generator) -> Iterator[Promise]:
    limit, count = float(np.exp(base.turn_sd * _Z95)), max(shape.boots, 3)
    found = []
    for _ in range(trials):
        boots = turns(base, count, shape.turns, rng)
        boots += base.boot_sd * rng.standard_normal((count, 1))
        found.append(quantile_against_over_boots(np.exp(boots).tolist(), p=_P95, limit=limit))
    what = f"budget: p95 over {count} boots, at the limit"
    yield _line(f"{what}: REGRESS (level 1 %)", _red(found), None)
    yield _line(f"{what}: PASS (level 5 %)", _passed(found), None)


def _floor(base: Noise, trials: int, shape: Shape, rng: np.random.Generator) -> Iterator[Promise]:
    """Ratios of one boot: blocks of turns, and an interaction of boot and arm of 1 %."""
    sd = (_INTERACTION**2 + base.turn_sd**2 / _BLOCKS) ** 0.5
    drawn = np.log(_FLOOR) + sd * rng.standard_normal((trials, shape.sessions + 1, shape.boots))
    found = [ratio_against_borrowing(each[0], each[1:].tolist(), floor=_FLOOR) for each in drawn]
    what = "floor: ratio by history's spread, at the floor"
    yield _line(f"{what}: REGRESS", _red(found), ALPHA, is_refuted=True)
    yield _line(f"{what}: PASS", _passed(found), BETA, is_refuted=True)
    wilder = np.array([0.5, *[0.0] * shape.sessions])[:, None]
    found = [
        ratio_against_borrowing(each[0], each[1:].tolist(), floor=_FLOOR)
        for each in drawn + wilder * (drawn - np.log(_FLOOR))
    ]
    what = "floor: the same, boots 1.5 times as scattered as history's"
    yield _line(f"{what}: REGRESS", _red(found), None)
    yield _line(f"{what}: PASS", _passed(found), None)
    easier = [
        ratio_against_borrowing(each[0] + np.log(1.10), each[1:].tolist(), floor=_FLOOR)
        for each in drawn
    ]
    yield _line("floor: PASS, 10 % above it", _passed(easier), None, "at least")


def _self_check(base: Noise, trials: int, rng: np.random.Generator) -> Iterator[Promise]:
    gaps = base.turn_sd * rng.standard_normal((trials, _BLOCKS // 2))
    failed = self_check_p(gaps) < ALPHA_SELF
    yield _line("self-check: sound instrument called INVALID", failed, ALPHA_SELF, is_refuted=True)


def _creep(base: Noise, trials: int, shape: Shape, rng: np.random.Generator) -> Iterator[Promise]:
    """Nights after an anchor was pinned, each tested; and a creep of half a percent a night."""
    sd = (base.session_sd**2 + base.boot_sd**2 / shape.boots) ** 0.5
    anchor = sd * rng.standard_normal((trials, shape.sessions))
    nights = sd * rng.standard_normal((trials, _NIGHTS))
    quiet = np.asarray(_alarms(nights, anchor).any(axis=1))
    yield _line(f"creep: any alarm in {_NIGHTS} nights without one", quiet, 0.05)
    steps = np.log(1.005) * np.arange(1, _NIGHTS + 1)
    found = np.asarray(_alarms(nights + steps, anchor)[:, : _NIGHTS // 2].any(axis=1))
    yield _line("creep: 0.5 % a night, found in 20 nights", found, None, "at least")


def _alarms(nights: Array, anchor: Array) -> Flags:
    windows = np.lib.stride_tricks.sliding_window_view(nights, LATEST, axis=1)
    return np.asarray(t_tail(*creep_gap(windows, anchor[:, None, :])) <= ALPHA_CREEP)


def _modes(base: Noise, trials: int, rng: np.random.Generator) -> Iterator[Promise]:
    one = base.boot_sd * rng.standard_normal((trials, 12))
    called = np.array([bool(modes(each.tolist()).are_two) for each in one])
    yield _line("two modes: seen in boots of one", called, ALPHA_MODES, is_refuted=True)
    two = one / 3 + np.log(1.15) * (np.arange(12) % 2)
    called = np.array([bool(modes(each.tolist()).are_two) for each in two])
    yield _line("two modes 15 % apart, boots a third as noisy: seen", called, None, "at least")


def _quick(base: Noise, trials: int, shape: Shape, rng: np.random.Generator) -> Iterator[Promise]:
    """A session of quick gates, half of them budgets and half floors, all at their boundary."""
    half, level = shape.gates // 2, ALPHA / (2 * (shape.gates // 2))
    under = rng.binomial(_TURNS, _HALF, (trials, half))
    red = [under <= few(_TURNS, _HALF, level)]
    logs = base.turn_sd * rng.standard_normal((trials, half, _BLOCKS))
    se = np.sqrt(squares(logs) / (_BLOCKS - 1) / _BLOCKS)
    red.append(t_tail(-logs.mean(axis=-1), se, _BLOCKS - 1) <= level)
    what = f"quick: any of {2 * half} gates at their limits called REGRESS"
    called = np.asarray(np.concatenate(red, axis=1).any(axis=1))
    yield _line(what, called, ALPHA, is_refuted=True)
    slow = base.turn_sd * rng.standard_normal((trials, _BLOCKS)) + np.log(_SLOWER)
    se = np.sqrt(squares(slow) / (_BLOCKS - 1) / _BLOCKS)
    found = t_tail(slow.mean(axis=-1), se, _BLOCKS - 1) <= level
    what = f"quick: one ratio of {2 * half} gates, 10 % under its floor, called REGRESS"
    yield _line(what, np.asarray(found), None, "at least")


def _red(found: list[Comparison]) -> Flags:
    return np.array([c.p_regress is not None and c.p_regress <= c.alpha for c in found])


def _passed(found: list[Comparison]) -> Flags:
    return np.array([c.p_pass is not None and c.p_pass <= c.beta for c in found])


def _line(
    what: str,
    flags: Flags,
    limit: float | None,
    sense: Sense = "at most",
    *,
    is_refuted: bool = False,
) -> Promise:
    tally = Tally()
    tally.add(np.asarray(flags))
    return tally.promise("tests", what, sense, limit, is_refuted=is_refuted)
