"""A worse tail is seen, a sound one is not suspected."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmperf.assumption.tail import Tail, tail_of_boots, tail_of_turns


def drawn(rng: random.Random, turns: int, median: float = 1.0, stalls: float = 0.0) -> list[float]:
    return [
        median * rng.lognormvariate(0, 0.05) * (6 if rng.random() < stalls else 1)
        for _ in range(turns)
    ]


def test_a_faster_arm_with_stalls_has_a_worse_tail() -> None:
    rng = random.Random(1)
    found = tail_of_turns(drawn(rng, 100, 0.5, stalls=0.12), drawn(rng, 100))
    assert found.is_worse
    assert found.ratio > 2


def test_a_few_stalls_of_the_reference_hide_nothing() -> None:
    rng = random.Random(2)
    other = [*drawn(rng, 97), 9.0, 9.5, 9.9]
    assert tail_of_turns(drawn(rng, 100, 0.5, stalls=0.25), other).is_worse


@pytest.mark.parametrize("turns", [13, 30, 100])
def test_equal_arms_are_hardly_ever_suspected(turns: int) -> None:
    rng = random.Random(3)
    found = [tail_of_turns(drawn(rng, turns), drawn(rng, turns)) for _ in range(400)]
    assert sum(bool(each.is_worse) for each in found) <= 400 * 0.05 + 9


def test_one_wild_turn_is_no_tail() -> None:
    rng = random.Random(4)
    assert tail_of_turns([*drawn(rng, 29, 0.5), 90.0], drawn(rng, 30)).is_worse is False


def test_few_turns_say_nothing() -> None:
    assert tail_of_turns([1.0] * 12, [1.0] * 12) == Tail(is_worse=None, ratio=1.0, p=None)


@given(st.lists(st.floats(0.1, 10), min_size=13, max_size=40), st.floats(0.5, 2))
def test_units_do_not_matter(values: Sequence[float], scale: float) -> None:
    half = len(values) // 2
    if half >= 13:
        mine, other = values[:half], values[half:]
        again = tail_of_turns([scale * v for v in mine], [scale * v for v in other])
        found = tail_of_turns(mine, other)
        assert again.ratio == pytest.approx(found.ratio)


def test_boots_whose_p95s_are_higher_are_worse_beyond_tolerance() -> None:
    assert tail_of_boots([0.5, 0.51, 0.49], [0.0, 0.01, -0.01], more=0.02).is_worse
    assert not tail_of_boots([0.02, 0.03, 0.01], [0.0, 0.01, -0.01], more=0.02).is_worse
    assert tail_of_boots([1.0, 1.0], [0.0, 0.0], more=0.02).is_worse is None
