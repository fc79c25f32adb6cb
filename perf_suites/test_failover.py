"""Who answers when a server fails under load, how long is it silent, and is anything lost?"""

from __future__ import annotations

import pytest

from pytest_llmperf import assert_failover

STALL_S = 4.0
"""Without an event for so long, a resident's request goes to the other machine."""


@pytest.mark.failover(streams=4, requests=12, fault="frozen", stall_s=STALL_S)
def test_the_standby_takes_over_from_a_server_that_hangs(llmperf, engine, tool_calls):
    """A hung server keeps its connections: only the stall limit notices."""
    run = llmperf.failover(engine("gemma"), engine("gemma_standby", copy=1), tool_calls)
    assert_failover(run, within_s=STALL_S + 8.0, lost=0)


@pytest.mark.failover(streams=4, requests=12, fault="killed", stall_s=STALL_S)
def test_the_standby_takes_over_from_a_server_that_is_killed(llmperf, engine, tool_calls):
    run = llmperf.failover(engine("gemma"), engine("gemma_standby", copy=1), tool_calls)
    assert_failover(run, within_s=8.0, lost=0)
