"""How long does a resident wait for a whole routine, with nothing cached and the long prompt in?"""

from __future__ import annotations

import pytest

from pytest_llmperf import assert_latency, assert_speedup


@pytest.mark.single_stream(turns=12)
@pytest.mark.speedup(of="single_stream", factor="speculation")
def test_prefill_does_not_eat_what_speculation_saves(
    llmperf, gemma, gemma_autoregressive, cold_router, budget
):
    """Drafting also makes prefill dearer; on a long cold prompt that could cost the whole gain."""
    pair = llmperf.compare(gemma, gemma_autoregressive, cold_router)
    assert_latency(
        pair.candidate,
        p50_s=budget("single_stream.p50"),
        p95_s=budget("single_stream.p95"),
    )
    assert_speedup(pair, at_least=1.2)
