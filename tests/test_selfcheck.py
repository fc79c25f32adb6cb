"""Odd and even blocks of one thing agree, whatever their prompts; a fault between them is told."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from functools import partial

import pytest

from pytest_llmperf.denominator import SINGLE_STREAM
from pytest_llmperf.evidence import Evidence, Measured
from pytest_llmperf.selfcheck import failure
from pytest_llmperf.testing import a_boot, a_session


def boot(turn: Callable[[int], float], *, turns: int = 48, prompts: int | None = 3) -> Measured:
    durations = [turn(place) for place in range(turns)]
    records = a_boot({"candidate": durations}, gate="t.py::test_turn", prompts=prompts)
    evidence = Evidence([a_session(), *records])
    return evidence.measured("m.test_turn.0.judged.0")[0]


def noisy(seed: int, place: int) -> float:
    return math.exp(random.Random(seed * 1000 + place).gauss(0, 0.08))


def test_a_fault_of_every_other_block_is_told_with_its_size() -> None:
    found = failure([boot(lambda n: noisy(1, n) * (1.5 if n // 2 % 2 else 1))], SINGLE_STREAM)
    assert found is not None
    assert found.reason == (
        "The instrument contradicts itself: odd and even blocks of the same thing differ."
    )
    assert found.evidence.startswith("In t.py::test_turn, arm candidate, odd blocks are 0.6")
    assert found.evidence.endswith("(p < 0.001, 12 pairs of blocks).")
    assert found.remedy.startswith("Trust no verdict of this session.")


@pytest.mark.parametrize("prompts", [2, 4, 8, 12])
def test_what_prompts_differ_by_is_no_fault(prompts: int) -> None:
    sizes = [1.0, 1.0, 2.0, 2.0] * 3
    found = failure(
        [boot(lambda n: noisy(2, n) * sizes[n % prompts], prompts=prompts)], SINGLE_STREAM
    )
    assert found is None


def test_prompts_that_never_come_back_cannot_be_told_apart_from_blocks() -> None:
    assert (
        failure([boot(lambda n: 1.5 if n // 2 % 2 else 1.0, prompts=None)], SINGLE_STREAM) is None
    )


def test_few_turns_say_nothing() -> None:
    assert failure([boot(lambda n: 1.5 if n // 2 % 2 else 1.0, turns=8)], SINGLE_STREAM) is None


@pytest.mark.parametrize("prompts", [3, 5, 8, 30])
def test_sound_boots_fail_hardly_ever(prompts: int) -> None:
    sound = [boot(partial(noisy, seed), turns=30, prompts=prompts) for seed in range(150)]
    assert sum(failure([each], SINGLE_STREAM) is not None for each in sound) <= 1


def test_more_checks_share_the_level() -> None:
    faulty = [boot(lambda n: noisy(3, n) * (1.2 if n // 2 % 2 else 1))]
    assert failure(faulty, SINGLE_STREAM) is not None
    assert failure(faulty, SINGLE_STREAM, checks=10_000) is None
