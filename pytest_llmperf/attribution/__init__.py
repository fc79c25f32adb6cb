"""Which part of a number moved: acceptance length or step time, first token or decode, which arm.

Whether it moved at all is judged in ``assumption`` and ``verdict``; nothing here is a test.
"""

from pytest_llmperf.attribution.explain import (
    Arms,
    Explanation,
    conditions,
    explain,
    explain_ratio,
    explain_terms,
    verifying_step,
)
from pytest_llmperf.attribution.split import Part
from pytest_llmperf.attribution.terms import Terms, joint, terms

__all__ = [
    "Arms",
    "Explanation",
    "Part",
    "Terms",
    "conditions",
    "explain",
    "explain_ratio",
    "explain_terms",
    "joint",
    "terms",
    "verifying_step",
]
