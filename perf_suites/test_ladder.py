"""What do more streams bring together, what does each of them get, and where is the knee?"""

from __future__ import annotations

import pytest

from pytest_llmperf import assert_ladder


@pytest.mark.ladder(streams=(1, 2, 4, 8, 16, 32, 64), turns=4)
def test_more_streams_bring_more_tokens_up_to_a_knee(llmperf, gemma, short_answers, budget):
    climb = llmperf.ladder(gemma, short_answers)
    assert_ladder(climb, gain_at_least=2.0, at_least_tps=budget("ladder.tps"))
