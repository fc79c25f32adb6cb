"""How much of the hardware's limit does decoding reach, and what does a drafter buy beyond it?"""

from __future__ import annotations

import pytest

from pytest_llmperf import assert_ceiling


@pytest.mark.decode_throughput(turns=12)
@pytest.mark.speedup(of="decode_throughput", factor="speculation")
def test_a_step_costs_little_more_than_one_read_of_the_weights(llmperf, engine, code):
    """On the miniature these two engines are heavier than its cache; elsewhere they are gemma."""
    heavy, plain = engine("heavy"), engine("heavy_autoregressive", speculation=False)
    pair = llmperf.compare(heavy, plain, code)
    assert_ceiling(pair, at_least=0.4)
