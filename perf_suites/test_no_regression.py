"""Did this build get slower than the machine's past, or than a reference that is booted beside it?

One boot decides nothing here: run these with --llmperf-mode=gate, or against a profile. The first
one is declared by its clock, so that `-m cached_turn` at a desk selects what one boot can decide.
"""

from __future__ import annotations

import pytest

from pytest_llmperf import assert_no_regression


@pytest.mark.denominator(clock="wall", prefix="warm", turns=12)
def test_a_cached_router_turn_did_not_get_slower(llmperf, gemma, router):
    assert_no_regression(llmperf(gemma, router))


@pytest.mark.time_to_first_token(prefix="cold", turns=12)
def test_the_first_token_of_a_cold_router_did_not_get_slower(llmperf, gemma, router):
    assert_no_regression(llmperf(gemma, router))


@pytest.mark.single_stream(turns=12)
def test_a_routine_did_not_get_slower(llmperf, gemma, tool_calls):
    assert_no_regression(llmperf(gemma, tool_calls))


@pytest.mark.decode_throughput(turns=12)
def test_decode_of_code_did_not_get_slower(llmperf, gemma, code):
    assert_no_regression(llmperf(gemma, code))
