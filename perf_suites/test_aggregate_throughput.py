"""What do several residents get at once: all together, and each of them?"""

from __future__ import annotations

import pytest

from pytest_llmperf import assert_latency, assert_speedup, assert_throughput

READERS = 8
READING_TPS = 5.0
"""Tokens a second at which a person reads along."""


@pytest.mark.aggregate_throughput(streams=READERS, turns=80)
def test_eight_residents_at_once_each_read_along(llmperf, gemma, tool_calls, budget):
    run = llmperf(gemma, tool_calls)
    assert_throughput(run, at_least_tps=READERS * READING_TPS)
    assert_throughput(run, at_least_tps=budget("aggregate.eight.tps"))


# By its clock, so that `-m cached_turn` stays the one question of a desk: a single resident's turn.
@pytest.mark.denominator(clock="wall", prefix="warm", streams=4, turns=40)
@pytest.mark.speedup(of="time_to_first_token", factor="prefix")
def test_four_live_conversations_keep_their_caches_at_once(llmperf, gemma, routine_router, budget):
    pair = llmperf.compare(gemma, routine_router)
    assert_latency(pair.candidate, p50_s=budget("aggregate.cached_turn.p50"))
    assert_speedup(pair, at_least=2.0)


@pytest.mark.denominator(
    clock="first_token", prefix="cold", arrival="poisson", rate_rps=1.5, turns=100
)
def test_three_requests_in_two_seconds_are_begun_while_one_looks(
    llmperf, gemma, tool_calls, budget
):
    run = llmperf(gemma, tool_calls)
    assert_latency(run, p50_s=2.0, p90_s=budget("aggregate.arrivals.p90"))
