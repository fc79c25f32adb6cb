"""Does the next turn of a live router conversation come back while its resident still looks?"""

from __future__ import annotations

import pytest

from pytest_llmperf import assert_latency, assert_speedup


@pytest.mark.cached_turn(turns=30)
@pytest.mark.speedup(of="time_to_first_token", factor="prefix")
def test_a_cached_router_turn_starts_in_a_fraction_of_a_cold_one(llmperf, gemma, router, budget):
    pair = llmperf.compare(gemma, router)
    assert_latency(
        pair.candidate,
        p50_s=budget("cached_turn.p50"),
        p95_s=budget("cached_turn.p95"),
    )
    assert_speedup(pair, at_least=5.0)
