"""How much of what speculation gains depends on how well the output can be guessed?"""

from __future__ import annotations

import pytest

from pytest_llmperf import assert_speedup_by_class


@pytest.mark.speedup(of="single_stream", factor="speculation", turns=12, min_acceptance=0)
def test_every_class_of_output_keeps_its_share_of_what_speculation_gains(
    llmperf, gemma, gemma_autoregressive, classes_of_output
):
    """At another temperature hardly a draft is accepted: there a loss is bounded, not forbidden."""
    found = llmperf.by_class(gemma, gemma_autoregressive, classes_of_output)
    floors = {
        "tool_call": 1.4,
        "json": 1.3,
        "code": 1.3,
        "prose": 1.0,
        "prose at temperature 0.7": 0.5,
    }
    assert_speedup_by_class(found, at_least=floors)
