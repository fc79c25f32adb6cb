"""Schedules are absolute: when a request is due does not depend on what became of earlier ones."""

from __future__ import annotations

from itertools import pairwise
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmperf.denominator import Arrival, Denominator
from pytest_llmperf.load.schedule import arrivals, at_once, constant, poisson, starts

REQUESTS = st.integers(1, 300)
RATES = st.floats(0.01, 10_000)


def _open(arrival: Arrival, rate_rps: float | None) -> Denominator:
    return Denominator(
        name="d",
        clock="wall",
        unit="request",
        prefix="any",
        streams=None,
        arrival=arrival,
        rate_rps=rate_rps,
    )


class TestEverySchedule:
    @given(REQUESTS, RATES, st.integers())
    def test_starts_at_zero_and_never_goes_back(
        self, requests: int, rate: float, seed: int
    ) -> None:
        for due in (constant(requests, rate), poisson(requests, rate, seed), at_once(requests)):
            assert len(due) == requests
            assert due[0] == 0
            assert all(earlier <= later for earlier, later in pairwise(due))

    def test_of_a_closed_loop_is_none_since_the_answers_decide(self) -> None:
        assert arrivals(_open("closed", None), 10, seed=1) is None

    @pytest.mark.parametrize("arrival", ["constant", "poisson", "burst"])
    def test_is_chosen_by_the_denominator(self, arrival: Arrival) -> None:
        rate = None if arrival == "burst" else 4.0
        wanted = {
            "constant": constant(10, 4.0),
            "poisson": poisson(10, 4.0, 3),
            "burst": at_once(10),
        }
        assert arrivals(_open(arrival, rate), 10, seed=3) == wanted[arrival]


class TestConstantArrivals:
    @given(REQUESTS, RATES)
    def test_do_not_gather_rounding(self, requests: int, rate: float) -> None:
        due = constant(requests, rate)
        assert all(abs(at - number * 1e9 / rate) <= 1 for number, at in enumerate(due))

    def test_are_evenly_spaced(self) -> None:
        assert constant(4, 4.0) == (0, 250_000_000, 500_000_000, 750_000_000)


class TestPoissonArrivals:
    @given(REQUESTS, RATES, st.integers())
    def test_are_the_same_for_the_same_seed(self, requests: int, rate: float, seed: int) -> None:
        assert poisson(requests, rate, seed) == poisson(requests, rate, seed)

    @given(st.integers(2, 300), RATES, st.integers())
    def test_of_a_shorter_plan_are_the_head_of_a_longer(
        self, requests: int, rate: float, seed: int
    ) -> None:
        assert poisson(requests, rate, seed) == poisson(requests + 5, rate, seed)[:requests]

    def test_come_at_the_mean_rate_with_exponential_gaps(self) -> None:
        due = poisson(20_000, 50.0, seed=7)
        gaps = [(later - earlier) / 1e9 for earlier, later in pairwise(due)]
        assert fmean(gaps) == pytest.approx(1 / 50, rel=0.03)
        # Of an exponential a share 1/e is longer than the mean.
        assert fmean(gap > 1 / 50 for gap in gaps) == pytest.approx(0.3679, abs=0.015)


class TestTheStartsOfAClosedLoop:
    @given(st.integers(2, 200), st.floats(0.001, 600))
    def test_are_spread_linearly_over_the_ramp(self, streams: int, ramp_s: float) -> None:
        due = starts(streams, ramp_s)
        assert due[0] == 0
        assert due[-1] == round(ramp_s * 1_000_000_000)
        gaps = [later - earlier for earlier, later in pairwise(due)]
        assert max(gaps) - min(gaps) <= 2

    def test_are_all_at_once_without_a_ramp(self) -> None:
        assert starts(3, None) == (0, 0, 0)

    def test_of_one_stream_is_at_once(self) -> None:
        assert starts(1, 2.0) == (0,)
