"""A metrics page becomes counters by meaning; what it lacks is unknown, never zero."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmperf.counters import Delta, difference, parse
from pytest_llmperf.record import Counters
from pytest_llmperf.testing import some_counters

MEANINGS = {
    "prefix_queries",
    "prefix_hits",
    "drafts",
    "draft_tokens",
    "accepted_tokens",
    "accepted_per_position",
    "prompt_tokens",
    "generation_tokens",
    "requests_finished",
    "requests_running",
    "requests_waiting",
    "preemptions",
    "started_at",
}


def read(text: str, model: str | None = "m") -> Counters:
    return parse(text, measurement_id="m0", boot_id="b0", when="before", at_ns=7, model=model)


def known(page: Counters) -> dict[str, Any]:
    return {name: each for name in MEANINGS if (each := getattr(page, name)) is not None}


def line(name: str, value: float | str, **labels: str) -> str:
    named = ",".join(f'{key}="{each}"' for key, each in {"model_name": "m", **labels}.items())
    return f"vllm:{name}{{{named}}} {value}\n"


TODAY = "".join(
    (
        "# HELP vllm:prefix_cache_queries_total Prefix cache queries.\n",
        "# TYPE vllm:prefix_cache_queries_total counter\n",
        line("prefix_cache_queries_total", "4480.0", engine="0"),
        "# TYPE vllm:prefix_cache_queries_created gauge\n",
        line("prefix_cache_queries_created", "1.75e+09", engine="0"),
        line("prefix_cache_hits_total", "2176.0", engine="0"),
        line("prefix_cache_hits_created", "1.75e+09", engine="0"),
        line("external_prefix_cache_hits_total", "99", engine="0"),
        line("spec_decode_num_drafts_total", "1000", engine="0"),
        line("spec_decode_num_draft_tokens_total", "3000", engine="0"),
        line("spec_decode_num_accepted_tokens_total", "2100", engine="0"),
        line("spec_decode_num_accepted_tokens_per_pos_total", "900", engine="0", position="0"),
        line("spec_decode_num_accepted_tokens_per_pos_total", "700", engine="0", position="1"),
        line("spec_decode_num_accepted_tokens_per_pos_total", "500", engine="0", position="2"),
        line("prompt_tokens_total", "4480", engine="0"),
        line("prompt_tokens_cached_total", "1", engine="0"),
        line("generation_tokens_total", "3100", engine="0"),
        line("request_success_total", "5", engine="0", finished_reason="stop"),
        line("request_success_total", "2", engine="0", finished_reason="length"),
        line("request_success_total", "1", engine="0", finished_reason="abort"),
        line("num_requests_running", "1", engine="0"),
        line("num_requests_waiting", "0", engine="0"),
        line("num_requests_waiting_by_reason", "9", engine="0", reason="capacity"),
        line("num_preemptions_total", "0", engine="0"),
        "process_start_time_seconds 1.7e+09\n",
    )
)


def test_todays_page_is_read_by_meaning() -> None:
    page = read(TODAY)
    assert page.readable
    assert page.problem is None
    assert known(page) == {
        "prefix_queries": 4480.0,
        "prefix_hits": 2176.0,
        "drafts": 1000.0,
        "draft_tokens": 3000.0,
        "accepted_tokens": 2100.0,
        "accepted_per_position": (900.0, 700.0, 500.0),
        "prompt_tokens": 4480.0,
        "generation_tokens": 3100.0,
        "requests_finished": 8.0,
        "requests_running": 1.0,
        "requests_waiting": 0.0,
        "preemptions": 0.0,
        "started_at": 1.7e9,
    }
    assert (page.measurement_id, page.boot_id, page.when, page.at_ns) == ("m0", "b0", "before", 7)


@pytest.mark.parametrize(
    "spelling",
    [
        "prefix_cache_{}_total",
        "prefix_cache_{}",
        "gpu_prefix_cache_{}_total",
        "gpu_prefix_cache_{}",
    ],
)
def test_every_spelling_of_a_counter_means_the_same(spelling: str) -> None:
    page = read(line(spelling.format("queries"), 150) + line(spelling.format("hits"), 100))
    assert (page.prefix_queries, page.prefix_hits) == (150.0, 100.0)


def test_a_page_without_a_counter_says_missing_and_not_zero() -> None:
    page = read(line("num_requests_running", 0))
    assert page.readable
    assert known(page) == {"requests_running": 0.0}


def test_old_and_new_spelling_together_are_counted_once() -> None:
    page = read(
        line("gpu_prefix_cache_hits_total", 100)
        + line("prefix_cache_hits", 100)
        + line("prefix_cache_hits_total", 100)
    )
    assert page.prefix_hits == 100.0


def test_a_creation_time_is_no_counter() -> None:
    page = read(line("prefix_cache_hits_created", 1.75e9) + line("num_requests_running", 0))
    assert page.prefix_hits is None
    assert page.started_at == 1.75e9


def test_names_match_exactly_and_not_by_their_beginning() -> None:
    page = read(
        line("prefix_cache_hits_total_bytes", 5)
        + line("prefix_cache_hits_totals", 5)
        + line("num_requests_running", 0)
    )
    assert page.prefix_hits is None


def test_engines_are_summed() -> None:
    before = read(
        line("prefix_cache_hits_total", 100, engine="0")
        + line("prefix_cache_hits_total", 400, engine="1")
    )
    after = read(
        line("prefix_cache_hits_total", 150, engine="0")
        + line("prefix_cache_hits_total", 400, engine="1")
    )
    assert difference(before, after).prefix_hits == 50.0


def test_positions_are_summed_over_engines_in_their_order() -> None:
    name = "spec_decode_num_accepted_tokens_per_pos_total"
    page = read(
        line(name, 1, position="1", engine="0")
        + line(name, 10, position="0", engine="0")
        + line(name, 2, position="1", engine="1")
        + line(name, 20, position="0", engine="1")
    )
    assert page.accepted_per_position == (30.0, 3.0)


def test_a_missing_position_makes_them_all_unknown() -> None:
    name = "spec_decode_num_accepted_tokens_per_pos_total"
    page = read(line(name, 1, position="0") + line(name, 1, position="2"))
    assert page.accepted_per_position is None


def test_only_the_model_that_is_measured_is_counted() -> None:
    both = line("prompt_tokens_total", 5) + line("prompt_tokens_total", 70, model_name="other")
    assert read(both).prompt_tokens == 5.0
    assert read(both, "other").prompt_tokens == 70.0


def test_two_models_and_none_named_is_unreadable() -> None:
    both = line("prompt_tokens_total", 5) + line("prompt_tokens_total", 70, model_name="other")
    page = read(both, None)
    assert not page.readable
    assert page.problem == "the metrics page is of several models (m, other): which is measured?"
    assert known(page) == {}
    assert read(line("prompt_tokens_total", 5), None).prompt_tokens == 5.0


def test_a_page_of_another_model_is_unreadable() -> None:
    page = read(line("prompt_tokens_total", 5), "ours")
    assert (page.readable, page.problem) == (False, "the metrics page is of m, not of ours")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "the metrics page is empty"),
        ("\n# nothing here\n", "the metrics page is empty"),
        (
            'python_info{version="3.11"} 1\nprocess_start_time_seconds 1.7e9\n',
            (
                "the metrics page has no metric of an engine "
                "(--disable-log-stats, or one of several API processes?)"
            ),
        ),
        (
            "<html><body>404</body></html>",
            "the metrics page is malformed: invalid metric name:<html><body>404</body></html>",
        ),
        (
            '{"detail":"Not Found"}',
            'the metrics page is malformed: Invalid labels: "detail":"Not Found"',
        ),
    ],
)
def test_a_page_that_tells_nothing_says_why(text: str, problem: str) -> None:
    page = read(text)
    assert (page.readable, page.problem) == (False, problem)
    assert known(page) == {}


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-1"])
def test_a_value_that_is_no_count_is_unknown_and_told(value: str) -> None:
    page = read(line("prompt_tokens_total", value) + line("generation_tokens_total", 5))
    assert page.readable
    assert page.prompt_tokens is None
    assert page.generation_tokens == 5.0
    assert page.problem is not None
    assert page.problem.startswith("vllm:prompt_tokens_total is ")


def test_more_hits_than_queries_is_told_as_swapped() -> None:
    page = read(line("prefix_cache_hits_total", 20) + line("prefix_cache_queries_total", 10))
    assert page.problem == "prefix_hits 20 is more than prefix_queries 10 (swapped?)"


@given(st.text(max_size=200))
def test_no_text_makes_the_reader_fail(text: str) -> None:
    page = read(text)
    assert page.readable or page.problem


@given(st.text(alphabet='vllm:prefix_cache_hits_total{}=",0 1\n#eE', max_size=60))
def test_no_metrics_like_text_makes_the_reader_fail(text: str) -> None:
    page = read(text)
    assert page.readable or page.problem


def counters(**fields: Any) -> Counters:  # noqa: ANN401 - any field of the record
    return some_counters(**fields)


def test_only_growth_over_the_window_counts() -> None:
    delta = difference(
        counters(prefix_queries=1000.0, prefix_hits=500.0, preemptions=None),
        counters(when="after", prefix_queries=3240.0, prefix_hits=2676.0, preemptions=3.0),
    )
    assert (delta.prefix_queries, delta.prefix_hits) == (2240.0, 2176.0)
    assert delta.preemptions is None
    assert delta.drafts is None
    assert delta.restarted is None


@pytest.mark.parametrize(
    ("before", "after", "seen"),
    [
        ({"prefix_hits": 400.0}, {"prefix_hits": 10.0}, "prefix_hits fell from 400 to 10"),
        (
            {"started_at": 1.7e9},
            {"started_at": 1.7e9 + 60},
            "the server's start moved from 1700000000 to 1700000060 (Unix seconds)",
        ),
    ],
)
def test_a_restart_is_seen_and_leaves_no_growth(
    before: dict[str, float], after: dict[str, float], seen: str
) -> None:
    assert difference(counters(**before), counters(**after)) == Delta(restarted=seen)


def test_a_gauge_may_fall() -> None:
    delta = difference(counters(requests_running=2.0), counters(requests_running=0.0))
    assert delta.restarted is None


@pytest.mark.parametrize("blank", [None, counters(readable=False, problem="empty")])
def test_without_both_readings_nothing_is_known(blank: Counters | None) -> None:
    assert difference(blank, counters()) == difference(counters(), blank) == Delta()


def test_acceptance_is_weighted_by_tokens_over_the_window() -> None:
    # 41,650 steps of length 2.3315 give 97,108 tokens; 97,092 were seen, 0.02 % apart.
    delta = difference(
        counters(drafts=10.0, draft_tokens=40.0, accepted_tokens=1.0),
        counters(drafts=41_660.0, draft_tokens=166_640.0, accepted_tokens=55_458.0),
    )
    assert delta.acceptance == pytest.approx(55_457 / 166_600)
    assert delta.acceptance_length == pytest.approx(2.3315, abs=5e-5)
    assert delta.drafts is not None
    assert delta.acceptance_length is not None
    assert delta.drafts * delta.acceptance_length == pytest.approx(97_108, abs=2)


def test_acceptance_by_position_is_over_drafting_steps() -> None:
    zero = counters(drafts=0.0, accepted_per_position=(0.0, 0.0, 0.0))
    later = counters(drafts=1000.0, accepted_per_position=(920.0, 780.0, 670.0))
    assert difference(zero, later).acceptance_per_position == (0.92, 0.78, 0.67)
    shorter = msgspec.structs.replace(later, accepted_per_position=(1.0,))
    assert difference(zero, shorter).acceptance_per_position is None


def test_without_a_draft_there_is_no_acceptance() -> None:
    delta = Delta(drafts=0.0, draft_tokens=0.0, accepted_tokens=0.0)
    assert (delta.acceptance, delta.acceptance_length, delta.acceptance_per_position) == (
        None,
        None,
        None,
    )
    assert Delta().acceptance is None
