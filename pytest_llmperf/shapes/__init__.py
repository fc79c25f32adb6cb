"""Shapes of conversations: how many turns, tools and words, and the smallest that breaks a budget.

What a search measures is planned in ``workload`` and sent by ``measure``. Hypothesis is imported
when a strategy or a search is asked for; it comes with the extra ``pytest-llmperf[shapes]``.
"""

from __future__ import annotations

from pytest_llmperf.shapes.claim import assert_budget_holds
from pytest_llmperf.shapes.shape import Shape
from pytest_llmperf.shapes.strategies import Space, conversations, prompt_lengths, tool_schemas

__all__ = [
    "Shape",
    "Space",
    "assert_budget_holds",
    "conversations",
    "prompt_lengths",
    "tool_schemas",
]
