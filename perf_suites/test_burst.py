"""What becomes of five hundred requests at once: is each answered, and after how long?"""

from __future__ import annotations

import pytest

from pytest_llmperf import assert_burst


@pytest.mark.burst(requests=500)
def test_five_hundred_at_once_are_all_answered(llmperf, gemma, short_answers, budget):
    run = llmperf(gemma, short_answers)
    assert_burst(run, p99_s=budget("burst.p99"), at_least_tps=budget("burst.tps"))
