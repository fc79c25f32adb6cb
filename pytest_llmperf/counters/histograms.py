"""A server's histograms of its own time, read as totals: seconds and how many requests gave them.

Counters and the page itself are in ``counters``; what the totals explain is in ``attribution``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

from pytest_llmperf.record import Spans, Spent

SPANS: dict[str, tuple[str, ...]] = {
    "queue": ("vllm:request_queue_time_seconds", "vllm:time_in_queue_requests"),
    "prefill": ("vllm:request_prefill_time_seconds",),
    "decode": ("vllm:request_decode_time_seconds",),
    "inference": ("vllm:request_inference_time_seconds",),
    "whole": ("vllm:e2e_request_latency_seconds",),
    "first_token": ("vllm:time_to_first_token_seconds",),
}
"""What the histogram of each span has been called, newest first."""


class Series(Protocol):
    """One sample of a metrics page."""

    @property
    def name(self) -> str:
        """The sample's name, with its suffix."""

    @property
    def value(self) -> float:
        """Its number."""


def totals(page: Sequence[Series]) -> tuple[Spans, list[str]]:
    """Each span's sum and count over all its series, and which of them were no numbers."""
    found: dict[str, Spent | None] = {}
    broken: list[str] = []
    for span, names in SPANS.items():
        name = next((each for each in names if _values(page, f"{each}_count")), None)
        if name is None:
            continue
        total = _total(page, name)
        found[span] = total
        if total is None:
            broken.append(f"{name} is no total")
    return Spans(**found), broken


def grown(before: Spans, after: Spans) -> Spans:
    """By how much each span's total grew; ``None`` where one reading lacks it or it fell."""
    return Spans(
        **{span: _grown(getattr(before, span), getattr(after, span)) for span in SPANS},
    )


def _values(page: Sequence[Series], name: str) -> list[float]:
    return [each.value for each in page if each.name == name]


def _total(page: Sequence[Series], name: str) -> Spent | None:
    """Sum and count over engines; ``None`` where the sum is missing or one is no number."""
    sums, counts = _values(page, f"{name}_sum"), _values(page, f"{name}_count")
    if not sums or not all(0 <= each < math.inf for each in (*sums, *counts)):
        return None
    return Spent(sum_s=math.fsum(sums), count=math.fsum(counts))


def _grown(before: Spent | None, after: Spent | None) -> Spent | None:
    if before is None or after is None:
        return None
    if after.count < before.count or after.sum_s < before.sum_s:
        return None
    return Spent(sum_s=after.sum_s - before.sum_s, count=after.count - before.count)
