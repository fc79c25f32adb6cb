"""What became of requests that arrived all at once: fates that sum up, waits, the server's queue.

Sending them is in ``measure``; what a test asserts of a burst is in ``claims``.
"""

from pytest_llmperf.load.burst.backlog import Backlog, Depth, backlog
from pytest_llmperf.load.burst.fate import Fate, Tally, fate, tally
from pytest_llmperf.load.burst.wait import Bounded, Waits, waits

__all__ = [
    "Backlog",
    "Bounded",
    "Depth",
    "Fate",
    "Tally",
    "Waits",
    "backlog",
    "fate",
    "tally",
    "waits",
]
