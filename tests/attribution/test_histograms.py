"""A server's own times off real pages and broken ones; what is missing is never zero."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmperf.counters import difference, parse
from pytest_llmperf.counters.histograms import SPANS, grown, totals
from pytest_llmperf.record import Counters, Spans, Spent

PAGES = Path(__file__).parent / "pages"
"""Of vLLM 0.32 on a CPU with a drafter, before and after 24 requests of 48 tokens."""


class Line(NamedTuple):
    name: str
    value: float


def page(when: str) -> Counters:
    text = (PAGES / f"vllm-0.32-{when}.txt").read_text(encoding="utf-8")
    return parse(text, measurement_id="m0", boot_id="b0", when="before", at_ns=0)


def test_a_real_page_gives_every_span_with_its_requests() -> None:
    found = page("after").spans
    assert {name: getattr(found, name).count for name in SPANS} == dict.fromkeys(SPANS, 25.0)
    assert found.decode == Spent(sum_s=21.88228039200112, count=25.0)


def test_between_two_real_pages_prefill_and_decode_make_up_the_inference() -> None:
    spans = difference(page("before"), page("after")).spans
    assert (spans.queue, spans.prefill, spans.decode, spans.inference) != (None,) * 4
    parts = [each.sum_s for each in (spans.prefill, spans.decode) if each is not None]
    assert spans.inference is not None
    assert spans.whole is not None
    assert sum(parts) == pytest.approx(spans.inference.sum_s, rel=1e-6)
    assert spans.inference.sum_s < spans.whole.sum_s
    assert spans.whole.count == 24


def test_series_of_several_engines_are_added_and_creation_times_are_no_totals() -> None:
    name = "vllm:request_queue_time_seconds"
    lines = [
        Line(f"{name}_sum", 1.5),
        Line(f"{name}_count", 3),
        Line(f"{name}_sum", 0.5),
        Line(f"{name}_count", 1),
        Line(f"{name}_created", 1.75e9),
        Line(f"{name}_bucket", 4),
    ]
    found, broken = totals(lines)
    assert found == Spans(queue=Spent(sum_s=2.0, count=4.0))
    assert broken == []


def test_an_older_name_is_understood_where_the_newer_one_is_absent() -> None:
    old = "vllm:time_in_queue_requests"
    found, _ = totals([Line(f"{old}_sum", 1.0), Line(f"{old}_count", 2)])
    assert found.queue == Spent(sum_s=1.0, count=2.0)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0])
def test_a_total_that_is_no_number_is_unknown_and_told(value: float) -> None:
    name = "vllm:e2e_request_latency_seconds"
    found, broken = totals([Line(f"{name}_sum", value), Line(f"{name}_count", 2)])
    assert found.whole is None
    assert broken == [f"{name} is no total"]


def test_a_count_without_a_sum_is_unknown() -> None:
    found, broken = totals([Line("vllm:request_decode_time_seconds_count", 2)])
    assert found.decode is None
    assert len(broken) == 1


def test_a_total_that_fell_or_is_on_one_page_only_did_not_grow_by_anything() -> None:
    low, high = Spent(sum_s=1.0, count=1.0), Spent(sum_s=2.0, count=2.0)
    assert grown(Spans(queue=high), Spans(queue=low)) == Spans()
    assert grown(Spans(queue=low), Spans()) == Spans()


def test_a_page_without_histograms_leaves_all_spans_unknown() -> None:
    text = 'vllm:generation_tokens_total{model_name="m"} 5.0\n'
    read = parse(text, measurement_id="m0", boot_id="b0", when="before", at_ns=0)
    assert read.readable
    assert read.spans == Spans()


@given(st.lists(st.tuples(st.floats(0, 1e6), st.integers(0, 10**6)), min_size=1, max_size=5))
def test_totals_are_sums_over_whatever_engines_there_are(engines: list[tuple[float, int]]) -> None:
    name = "vllm:request_prefill_time_seconds"
    lines = [
        line
        for sum_s, count in engines
        for line in (Line(f"{name}_sum", sum_s), Line(f"{name}_count", count))
    ]
    found, _ = totals(lines)
    assert found.prefill is not None
    assert found.prefill.sum_s == pytest.approx(sum(each for each, _ in engines))
    assert found.prefill.count == sum(each for _, each in engines)
