"""Markers are frozen records, checked before anything costs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmperf.declaration import Declaration, declare, near_miss, signature
from pytest_llmperf.denominator import BUILT_IN
from pytest_llmperf.markers import MARKERS


def _declared(*markers: tuple[str, dict[str, Any]]) -> Declaration:
    declared, problems = declare([(name, (), keywords) for name, keywords in markers])
    assert problems == []
    assert declared is not None
    return declared


def _problems(*markers: tuple[str, dict[str, Any]]) -> list[str]:
    declared, problems = declare([(name, (), keywords) for name, keywords in markers])
    assert declared is None
    return problems


class TestADeclaration:
    @pytest.mark.parametrize("name", sorted({*BUILT_IN} - {"aggregate_throughput", "burst"}))
    def test_of_a_named_denominator_is_that_denominator(self, name: str) -> None:
        assert _declared((name, {})).denominator == BUILT_IN[name]

    def test_of_time_to_first_token_says_its_cache_state(self) -> None:
        declared = _declared(("time_to_first_token", {"prefix": "warm"}))
        assert declared.denominator.prefix == "warm"
        assert declared.denominator.words == (
            "wait before anything appears, per request, cached prefix, proven, 1 stream"
        )

    def test_of_your_own_states_clock_unit_and_prefix(self) -> None:
        declared = _declared(
            ("denominator", {"clock": "wall", "unit": "output_token", "prefix": "cold"})
        )
        assert declared.denominator.formula == "N / (t_last_token - t_sent)"

    def test_is_none_where_no_marker_is_ours(self) -> None:
        assert declare([]) == (None, [])

    def test_takes_the_nearest_of_two_markers_of_one_name(self) -> None:
        near, far = ("cached_turn", (), {"turns": 7}), ("cached_turn", (), {"turns": 9})
        declared, problems = declare([near, far])
        assert problems == []
        assert declared is not None
        assert declared.plan.turns == 7

    def test_of_a_speed_up_by_prefix_has_a_warm_candidate(self) -> None:
        declared = _declared(("speedup", {"of": "time_to_first_token", "factor": "prefix"}))
        assert declared.denominator.prefix == "warm"
        assert declared.factor == "prefix"

    def test_of_a_speed_up_beside_a_denominator_takes_its_plan_from_there(self) -> None:
        declared = _declared(
            ("cached_turn", {"turns": 12}),
            ("speedup", {"of": "time_to_first_token", "factor": "prefix"}),
        )
        assert declared.plan.turns == 12
        assert declared.denominator == BUILT_IN["cached_turn"]
        assert declared.speedup is not None
        assert declared.speedup.clock == "first_token"


class TestAProblem:
    def test_names_an_unknown_keyword_and_the_one_that_was_meant(self) -> None:
        assert _problems(("cached_turn", {"turn": 3})) == [
            (
                "cached_turn: turn is not a keyword of this marker. Did you mean turns? It takes "
                "turns, warmup, tolerance, detect, min_acceptance, streams, arrival, rate_rps, "
                "ramp_s, windows, min_cached_share."
            )
        ]

    @pytest.mark.parametrize("keyword", ["tolerance", "detect", "min_acceptance"])
    def test_refuses_what_means_nothing_to_a_failover(self, keyword: str) -> None:
        assert _problems(("failover", {keyword: 0.2})) == [
            (
                f"failover: {keyword} is not a keyword of this marker. It takes requests, warmup, "
                "streams, fault, stall_s."
            )
        ]
        assert keyword not in signature("failover")

    def test_lists_every_wrong_value_at_once(self) -> None:
        assert _problems(("denominator", {"clock": "wal", "turns": "x"})) == [
            (
                "denominator: clock='wal': Invalid enum value 'wal'. Choose one of "
                "wall, first_token, "
                "decode, span, switch."
            ),
            "denominator: turns='x': Expected `int`, got `str`.",
        ]

    def test_names_a_missing_keyword(self) -> None:
        assert _problems(("speedup", {"of": "single_stream"})) == [
            f"speedup: factor is missing. Write {signature('speedup')}"
        ]

    def test_refuses_positional_arguments(self) -> None:
        _, problems = declare([("cached_turn", (30,), {})])
        assert problems == [
            f"cached_turn(30,): takes keywords only. Write {signature('cached_turn')}"
        ]

    @pytest.mark.parametrize("turns", [0, -1, 1.5, True, None])
    def test_refuses_a_plan_of_no_turns(self, turns: object) -> None:
        assert len(_problems(("cached_turn", {"turns": turns}))) == 1

    def test_refuses_two_denominators_on_one_test(self) -> None:
        assert _problems(("cached_turn", {}), ("single_stream", {})) == [
            (
                "cached_turn and single_stream: one test has one denominator. Keep one "
                "of them; the "
                "same samples are shown under the others anyway."
            )
        ]

    def test_refuses_a_whole_turn_ratio_of_cached_against_cold(self) -> None:
        assert _problems(("speedup", {"of": "single_stream", "factor": "prefix"})) == [
            (
                "speedup: of='single_stream' with factor='prefix': a cached prefix saves prefill "
                "and nothing else, so its ratio is gated on of='time_to_first_token'; the "
                "whole-turn ratio of the same samples is shown beside it."
            )
        ]

    def test_refuses_a_ratio_that_could_never_be_red(self) -> None:
        assert _problems(("speedup", {"of": "single_stream", "factor": "profile", "turns": 3})) == [
            (
                "speedup: turns=3: a ratio needs two blocks of two turns on each arm before any "
                "test can reject anything. Plan at least 4."
            )
        ]

    def test_refuses_a_plan_stated_twice(self) -> None:
        ratio = {"of": "time_to_first_token", "factor": "prefix", "turns": 24}
        assert _problems(("cached_turn", {"turns": 12}), ("speedup", ratio)) == [
            (
                "speedup: turns is stated beside another marker, whose plan holds for both. "
                "Move it there."
            )
        ]


class TestAMarkerName:
    @pytest.mark.parametrize(
        ("written", "meant"),
        [
            ("cached_trun", "cached_turn"),
            ("speed_up", "speedup"),
            ("single_steam", "single_stream"),
        ],
    )
    def test_that_is_misspelt_is_recognised(self, written: str, meant: str) -> None:
        assert near_miss(written) == meant

    @pytest.mark.parametrize("name", ["slow", "asyncio", "parametrize", "flaky"])
    def test_that_is_somebody_elses_is_left_alone(self, name: str) -> None:
        assert near_miss(name) is None


@given(
    st.sampled_from(list(MARKERS)),
    st.dictionaries(
        st.text(max_size=12), st.none() | st.integers() | st.text() | st.floats(), max_size=4
    ),
)
def test_whatever_a_marker_says_gives_a_declaration_or_problems_never_both(
    name: str, keywords: dict[str, Any]
) -> None:
    declared, problems = declare([(name, (), keywords)])
    assert (declared is None) == bool(problems)


class TestALoad:
    def test_of_a_closed_loop_says_its_streams_and_what_becomes_of_its_start(self) -> None:
        declared = _declared(("aggregate_throughput", {"streams": 8}))
        assert declared.windows == 5
        assert declared.denominator.formula == "sum(N) / (max t_last_token - min t_sent)"
        assert declared.denominator.words == (
            "all streams together, from first to last, output tokens per second, "
            "cold prefix, proven, 8 streams, first wave left out"
        )

    def test_with_a_ramp_says_so(self) -> None:
        keywords = {"streams": 4, "turns": 40, "ramp_s": 2}
        declared = _declared(("cached_turn", keywords))
        assert declared.denominator.words.endswith("4 streams, started over 2 s")

    def test_of_arrivals_counts_from_when_a_request_was_due(self) -> None:
        declared = _declared(("cached_turn", {"arrival": "poisson", "rate_rps": 2}))
        assert declared.denominator.streams is None
        assert declared.denominator.formula == "t_last_token - t_due"
        assert declared.denominator.words.endswith("Poisson arrivals at 2 requests a second")

    def test_of_a_burst_is_one_window_of_all_requests(self) -> None:
        declared = _declared(("burst", {"requests": 20}))
        assert (declared.plan.turns, declared.windows) == (20, 1)
        assert declared.denominator.formula == "t_last_token - t_due"
        assert declared.denominator.words.endswith("20 requests at once")

    def test_carries_over_to_a_ratio_stated_beside_it(self) -> None:
        declared = _declared(
            ("cached_turn", {"streams": 4, "turns": 40}),
            ("speedup", {"of": "time_to_first_token", "factor": "prefix"}),
        )
        assert declared.speedup is not None
        assert declared.speedup.streams == 4

    def test_of_one_stream_is_none(self) -> None:
        assert _declared(("cached_turn", {})).windows is None
        assert not _declared(("cached_turn", {})).denominator.is_load

    def test_differs_from_another_by_name(self) -> None:
        closed = _declared(("cached_turn", {"streams": 4, "turns": 40})).denominator
        open_ = _declared(("cached_turn", {"arrival": "constant", "rate_rps": 2})).denominator
        assert closed.differences(open_) == [
            "streams: 4 against None",
            "arrival: 'closed' against 'constant'",
            "rate_rps: None against 2.0",
        ]

    @pytest.mark.parametrize(
        ("marker", "keywords", "problem"),
        [
            (
                "cached_turn",
                {"rate_rps": 2},
                (
                    "cached_turn: rate_rps=2 in a closed loop, which sends when it is answered. "
                    "Say arrival='constant' or arrival='poisson', or leave the rate out."
                ),
            ),
            (
                "aggregate_throughput",
                {},
                (
                    "aggregate_throughput: streams is missing: say how many requests are in flight "
                    "at once, or arrival and rate_rps."
                ),
            ),
            (
                "cached_turn",
                {"ramp_s": 2},
                (
                    "cached_turn: ramp_s=2 with one stream: turns follow one another. "
                    "Say streams, or leave ramp_s out."
                ),
            ),
            (
                "cached_turn",
                {"windows": 2},
                (
                    "cached_turn: windows=2 with one stream: turns follow one another. "
                    "Say streams, or leave windows out."
                ),
            ),
            (
                "cached_turn",
                {"arrival": "poisson"},
                (
                    "cached_turn: arrival='poisson' without a rate. Say rate_rps, the requests a "
                    "second that are offered."
                ),
            ),
            (
                "cached_turn",
                {"arrival": "trace", "rate_rps": 2},
                (
                    "cached_turn: rate_rps=2 with arrival='trace': the traffic's own times decide. "
                    "Leave rate_rps out."
                ),
            ),
            (
                "aggregate_throughput",
                {"arrival": "constant", "rate_rps": 3, "streams": 4},
                (
                    "aggregate_throughput: streams=4 with arrival='constant': the schedule decides "
                    "how many are in flight. Leave streams out."
                ),
            ),
            (
                "aggregate_throughput",
                {"arrival": "constant", "rate_rps": 3, "ramp_s": 4},
                (
                    "aggregate_throughput: ramp_s=4 with arrival='constant': a schedule has no "
                    "streams to start one by one. Leave ramp_s out."
                ),
            ),
            (
                "cached_turn",
                {"streams": 4, "turns": 42},
                "cached_turn: turns=42 cannot be divided into 5 windows of equal size. Plan 45.",
            ),
            (
                "cached_turn",
                {"streams": 4},
                (
                    "cached_turn: turns=30 in 5 windows of 4 streams are 6 a window: each stream "
                    "needs 2, or the load is never steady. Plan at least 40."
                ),
            ),
            (
                "denominator",
                {"clock": "span", "streams": 2},
                "denominator: clock='span' counts output tokens. Say unit='output_token'.",
            ),
            ("cached_turn", {"streams": 0}, "cached_turn: streams=0: Expected `int` >= 1."),
            (
                "aggregate_throughput",
                {"arrival": "constant", "rate_rps": 0},
                "aggregate_throughput: rate_rps=0: Expected `float` >= 0.001.",
            ),
        ],
    )
    def test_that_does_not_go_together_is_refused(
        self, marker: str, keywords: dict[str, Any], problem: str
    ) -> None:
        assert _problems((marker, keywords)) == [problem]


class TestAFactorial:
    def test_crosses_an_engine_with_the_prefix(self) -> None:
        declared = _declared(("factorial", {"of": "single_stream", "turns": 8}))
        assert declared.factors == ("speculation", "prefix")
        assert (declared.factor, declared.arms) == (None, 4)

    def test_may_cross_two_profiles_with_the_prefix(self) -> None:
        factors = ("profile", "prefix")
        declared = _declared(("factorial", {"of": "decode_throughput", "factors": factors}))
        assert declared.factors == factors

    @pytest.mark.parametrize(
        "factors", [("prefix", "prefix"), ("prefix", "speculation"), ("speculation", "profile")]
    )
    def test_takes_no_other_factors(self, factors: tuple[str, str]) -> None:
        (found,) = _problems(("factorial", {"of": "single_stream", "factors": factors}))
        assert found == (
            f"factorial: factors={factors!r}: the first is of two engines ('speculation' or "
            "'profile'), the second is 'prefix', which each of them can do both ways."
        )

    def test_needs_two_blocks(self) -> None:
        (found,) = _problems(("factorial", {"of": "single_stream", "turns": 3}))
        assert found == (
            "factorial: turns=3: an effect needs two blocks of two turns in each cell before any "
            "test can reject anything. Plan at least 4."
        )

    def test_states_its_gains_itself(self) -> None:
        speedup = {"of": "single_stream", "factor": "speculation"}
        found = _problems(("factorial", {"of": "single_stream"}), ("speedup", speedup))
        assert (
            "factorial and speedup: each factor's gain is an effect of the factorial" in found[-1]
        )
