"""Gates against the past: what one is held against, and what waits for its fresh boots.

History's word is in ``screening``, that of fresh boots in ``confirming``; the tests themselves are
in ``assumption``. Where past sessions come from is the session's business, and so is how engines
are booted. Nothing here knows pytest.
"""

from __future__ import annotations

from pytest_llmperf.suspects.confirming import MOST_PAIRS, confirm_all, recorded_row
from pytest_llmperf.suspects.held import Past, Pending, Retake, claim_of, slowness
from pytest_llmperf.suspects.screening import forced_row, quick_row, screened_row, unconfirmed

__all__ = [
    "MOST_PAIRS",
    "Past",
    "Pending",
    "Retake",
    "claim_of",
    "confirm_all",
    "forced_row",
    "quick_row",
    "recorded_row",
    "screened_row",
    "slowness",
    "unconfirmed",
]
