"""Does speculation pay by the caller's clock, for each kind of output that a household asks for?"""

from __future__ import annotations

import pytest

from pytest_llmperf import assert_speedup


@pytest.mark.speedup(of="single_stream", factor="speculation", turns=24)
def test_speculation_pays_on_tool_calls(llmperf, gemma, gemma_autoregressive, tool_calls):
    pair = llmperf.compare(gemma, gemma_autoregressive, tool_calls)
    assert_speedup(pair, at_least=1.4)


@pytest.mark.speedup(of="single_stream", factor="speculation", turns=16)
def test_speculation_pays_on_json(llmperf, gemma, gemma_autoregressive, json_records):
    pair = llmperf.compare(gemma, gemma_autoregressive, json_records)
    assert_speedup(pair, at_least=1.4)


@pytest.mark.speedup(of="single_stream", factor="speculation", turns=16)
def test_speculation_pays_on_code(llmperf, gemma, gemma_autoregressive, code):
    pair = llmperf.compare(gemma, gemma_autoregressive, code)
    assert_speedup(pair, at_least=1.4)


@pytest.mark.speedup(of="single_stream", factor="speculation", turns=16)
def test_speculation_costs_nothing_on_prose(llmperf, gemma, gemma_autoregressive, prose):
    """Prose is hard to guess: all that is asked is that the caller does not wait longer."""
    pair = llmperf.compare(gemma, gemma_autoregressive, prose)
    assert_speedup(pair, at_least=1.0)
