"""What does the drafter gain, what the prefix cache, and do their gains multiply?"""

from __future__ import annotations

import pytest

from pytest_llmperf import assert_speedup


@pytest.mark.factorial(of="single_stream", turns=10)
def test_both_mechanisms_pay_on_a_router_turn(llmperf, gemma, gemma_autoregressive, router):
    """A tool call can be guessed: the drafter saves decode, the cache prefill, each its own."""
    cells = llmperf.factorial(gemma, gemma_autoregressive, router)
    assert_speedup(cells.effect("speculation"), at_least=1.2)
    assert_speedup(cells.effect("prefix", by="time_to_first_token"), at_least=3.0)
    assert_speedup(cells.interaction(), at_least=0.9)


@pytest.mark.factorial(of="single_stream", turns=10)
def test_neither_mechanism_takes_from_the_other_on_free_text(
    llmperf, gemma, gemma_autoregressive, storyteller
):
    """Free text is hard to guess: there the drafter must cost nothing, cached or cold."""
    cells = llmperf.factorial(gemma, gemma_autoregressive, storyteller)
    assert_speedup(cells.effect("speculation"), at_least=1.0)
    assert_speedup(cells.effect("prefix", by="time_to_first_token"), at_least=2.0)
    assert_speedup(cells.interaction(), at_least=0.8)
