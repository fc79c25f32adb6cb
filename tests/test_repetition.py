"""The share of an output that it has said before."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmperf.stream.repetition import NGRAM, repetition


def test_an_output_that_says_nothing_twice_repeats_nothing() -> None:
    assert repetition(range(20)) == 0.0


def test_half_of_what_is_said_twice_is_repeated() -> None:
    # 16 tokens have 13 4-grams; the second eight repeat 5 of them, 3 straddle the seam.
    assert repetition([*range(8), *range(8)]) == pytest.approx(5 / 13)


def test_a_loop_repeats_all_but_its_first_round() -> None:
    assert repetition([1] * 103) == pytest.approx(99 / 100)


@pytest.mark.parametrize("tokens", range(NGRAM + 1))
def test_an_output_too_short_to_repeat_anything_has_no_rate(tokens: int) -> None:
    assert repetition(range(tokens)) is None


@given(st.lists(st.integers(0, 3), max_size=60))
def test_the_rate_is_a_share_and_never_the_whole(tokens: list[int]) -> None:
    rate = repetition(tokens)
    assert rate is None or 0 <= rate < 1


@given(st.lists(st.integers(0, 5), min_size=5, max_size=30))
def test_the_rate_does_not_depend_on_which_tokens_they_are(tokens: list[int]) -> None:
    renamed = [100 - each for each in tokens]
    assert repetition(renamed) == repetition(tokens)
