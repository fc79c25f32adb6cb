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
from pytest_llmperf.attribution.where import Where, where, where_lines

__all__ = [
    "Arms",
    "Explanation",
    "Part",
    "Terms",
    "Where",
    "conditions",
    "explain",
    "explain_ratio",
    "explain_terms",
    "joint",
    "terms",
    "verifying_step",
    "where",
    "where_lines",
]
