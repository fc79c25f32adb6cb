"""Is there a conversation that keeps its resident waiting, and which is the smallest one?"""

from __future__ import annotations

import pytest

from pytest_llmperf.shapes import Space, assert_budget_holds

PATIENCE_S = 5.0
"""After which a resident asks again. Where a machine has a budget of its own, that one holds."""


@pytest.mark.time_to_first_token(turns=14, warmup=1)
def test_no_conversation_of_the_house_keeps_its_resident_waiting(
    llmperf, gemma, house_talk, budget
):
    stated = budget("shapes.first_token.p50")
    assert_budget_holds(
        llmperf,
        gemma,
        Space(turns=6, tools=8, words=1024, step=64, make=house_talk),
        p50_s=PATIENCE_S if stated.limit is None else stated,
        most_probes=22,
        within_s=150.0,
    )
