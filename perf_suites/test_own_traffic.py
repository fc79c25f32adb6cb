"""Does speculation pay on what is really asked here, and how long do those who ask it wait?

The file beside it is made up. Put a log of your own in its place: LLMPERF_TRAFFIC names it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytest_llmperf import assert_latency, assert_speedup
from pytest_llmperf.traffic import Traffic
from pytest_llmperf.workload import unchanging

SHIPPED = Path(__file__).with_name("traffic") / "household.jsonl"


@pytest.fixture(scope="session")
def own_traffic() -> Traffic:
    """The log of chat requests; nothing of its words is shown or stored."""
    return unchanging(lambda: Traffic.from_jsonl(os.environ.get("LLMPERF_TRAFFIC", SHIPPED)))


@pytest.mark.denominator(
    clock="first_token", prefix="cold", arrival="trace", turns=60, windows=5, warmup=2
)
def test_whoever_asked_would_still_be_looking(llmperf, gemma, own_traffic, budget):
    """The log is sent five times over, each request when it came, whatever was answered by then."""
    run = llmperf(gemma, own_traffic)
    assert_latency(run, p50_s=2.0, p90_s=budget("own_traffic.arrivals.p90"))


@pytest.mark.speedup(of="single_stream", factor="speculation", turns=12)
def test_speculation_pays_on_our_own_traffic(
    llmperf, gemma, gemma_autoregressive, own_traffic, budget
):
    pair = llmperf.compare(gemma, gemma_autoregressive, own_traffic)
    assert_latency(pair.candidate, p50_s=budget("own_traffic.p50"))
    assert_speedup(pair, at_least=1.2)
