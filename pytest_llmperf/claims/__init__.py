"""What a test asserts of load: counts that are exact, waits that losses do not flatter, a gain.

A burst is one event and a ladder one climb: their requests wait for each other, so that none of
them is a replicate. On one boot a count is a fact, and a number is held against its limit with a
margin for the machine's noise; on several boots the boots are the replicates.
"""

from pytest_llmperf.claims.arrivals import assert_burst
from pytest_llmperf.claims.rungs import assert_ladder
from pytest_llmperf.claims.taking_over import assert_failover

__all__ = ["assert_burst", "assert_failover", "assert_ladder"]
