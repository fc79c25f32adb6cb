"""How fast do tokens come once they come? The headline's number, beside the caller's."""

from __future__ import annotations

import pytest

from pytest_llmperf import assert_speedup, assert_throughput


@pytest.mark.decode_throughput(turns=12)
@pytest.mark.speedup(of="decode_throughput", factor="speculation")
def test_a_drafter_doubles_decode_throughput_on_tool_calls(
    llmperf, gemma, gemma_autoregressive, tool_calls, budget
):
    pair = llmperf.compare(gemma, gemma_autoregressive, tool_calls)
    assert_throughput(pair.candidate, at_least_tps=budget("decode.tool_calls.tps"))
    assert_speedup(pair, at_least=2.0)
