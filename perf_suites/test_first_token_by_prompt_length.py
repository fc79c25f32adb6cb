"""How does the wait before anything appears grow with the prompt, and what of it is prefill?"""

from __future__ import annotations

import pytest

from pytest_llmperf import assert_latency, assert_speedup


@pytest.mark.time_to_first_token(prefix="warm", turns=12)
@pytest.mark.speedup(of="time_to_first_token", factor="prefix")
@pytest.mark.parametrize(
    ("prompt_tokens", "floor"),
    [
        pytest.param(256, 1.2, id="256-tokens"),
        pytest.param(1024, 2.5, id="1024-tokens"),
        pytest.param(2048, 4.0, id="2048-tokens"),
    ],
)
def test_a_cached_prefix_saves_more_the_longer_the_prompt(
    llmperf, gemma, conversations_of, budget, prompt_tokens, floor
):
    pair = llmperf.compare(gemma, conversations_of(prompt_tokens))
    assert_latency(pair.reference, p50_s=budget(f"first_token.cold_{prompt_tokens}.p50"))
    assert_speedup(pair, at_least=floor)
