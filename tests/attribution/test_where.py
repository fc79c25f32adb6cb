"""Where the caller's time went: parts that add up to the wall clock, or by how much they don't."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmperf.attribution import where, where_lines
from pytest_llmperf.evidence import Measured
from pytest_llmperf.record import Spans, Spent
from pytest_llmperf.testing import a_measurement, a_request, an_engine, some_counters

START_NS = 2_000_000_000
TURN_NS = 1_000_000_000


def an_arm(
    spans: Mapping[str, float | None], turns: int = 4, *, primes: int = 0, seen: int | None = None
) -> Measured:
    """Turns of 0.4 s; spans are the server's mean seconds of each, over ``seen`` requests."""
    start = a_measurement()
    roles = ["prime"] * primes + ["turn"] * turns
    sent = tuple(
        a_request(
            request_id=f"r{n}",
            position=n,
            role=role,
            arm="candidate",
            boot_id="b0",
            measurement_id="m0",
            start_ns=START_NS + n * TURN_NS,
        )
        for n, role in enumerate(roles)
    )
    count = len(roles) if seen is None else seen
    grown = {
        name: None if mean_s is None else Spent(sum_s=10 + mean_s * count, count=3.0 + count)
        for name, mean_s in spans.items()
    }
    zero = {
        name: None if each is None else Spent(sum_s=10, count=3) for name, each in grown.items()
    }
    return Measured(
        measurement=start,
        arm=start.arms[0],
        engine=an_engine(),
        requests=sent,
        before=some_counters(at_ns=START_NS - 1, spans=Spans(**zero)),
        after=some_counters(when="after", at_ns=START_NS + 60 * TURN_NS, spans=Spans(**grown)),
    )


WHOLE: dict[str, float | None] = {
    "queue": 0.001,
    "prefill": 0.090,
    "decode": 0.300,
    "whole": 0.394,
}


def test_the_parts_and_the_client_add_up_to_what_the_caller_waited() -> None:
    found = where([an_arm(WHOLE)])
    assert found.wall_s == pytest.approx(0.4)
    assert found.client_s == pytest.approx(0.006)
    assert found.unexplained_s == pytest.approx(0.003)
    assert found.text == (
        "queue 1.00 ms, prefill 90.0 ms, decode 0.300 s, client and network 6.00 ms of 0.400 s; "
        "0.8 % unexplained; mean of 4 requests"
    )


def test_priming_requests_are_in_the_histograms_and_so_in_the_means() -> None:
    found = where([an_arm(WHOLE, primes=2)])
    assert found.text.endswith("mean of 6 requests, 2 priming ones included")


def test_parts_that_do_not_add_up_say_by_how_much() -> None:
    text = where([an_arm(WHOLE | {"decode": 0.2})]).text
    assert "they do not add up: 0.103 s (26 %) is in none of them" in text


def test_parts_that_are_more_than_the_caller_waited_say_so() -> None:
    text = where([an_arm(WHOLE | {"prefill": 0.2})]).text
    assert "they do not add up: 0.107 s more than the caller waited" in text


def test_a_missing_histogram_is_not_measured_and_never_zero() -> None:
    found = where([an_arm(WHOLE | {"queue": None})])
    assert found.queue_s is None
    assert found.text.startswith("queue not measured, prefill 90.0 ms")
    assert "the metrics page has no vllm:request_queue_time_seconds" in found.text


def test_without_the_server_s_whole_the_client_is_not_known_and_its_time_is_unexplained() -> None:
    found = where([an_arm(WHOLE | {"whole": None, "queue": 0.002})])
    assert found.client_s is None
    assert "client and network not measured of 0.400 s; 2 % unexplained" in found.text


def test_times_of_other_people_s_requests_are_not_ours() -> None:
    found = where([an_arm(WHOLE, seen=5)])
    assert (found.queue_s, found.prefill_s, found.decode_s, found.server_s) == (None,) * 4
    assert "the server timed 5 requests and 4 are ours: its times are not of ours" in found.text


def test_unreadable_counters_are_told() -> None:
    arm = an_arm(WHOLE)
    after = some_counters(when="after", readable=False, problem="the metrics page is empty")
    found = where([msgspec.structs.replace(arm, after=after)])
    assert found.server_s is None
    assert "cannot be read (after: the metrics page is empty)" in found.text


def test_arms_on_one_engine_share_one_line_and_two_engines_have_their_names() -> None:
    one = an_arm(WHOLE)
    assert len(where_lines([[one], [one]])) == 1
    there = msgspec.structs.replace(one.arm, boot_id="b1", engine="gemma_autoregressive")
    other = msgspec.structs.replace(one, arm=there)
    lines = where_lines([[one], [other]])
    assert [line.partition(":")[0] for line in lines] == ["gemma", "gemma_autoregressive"]


def read_around_each(arm: Measured, mean_s: Mapping[str, float], *, at_once: int = 1) -> Measured:
    """The same requests with a page after each; priming requests take ten times as long."""
    total = dict.fromkeys(mean_s, 10.0)
    pages, count = [], 3.0
    for n, each in enumerate(arm.requests):
        longer = 10 if each.role == "prime" else 1
        total = {name: total[name] + longer * mean_s[name] for name in mean_s}
        count += at_once
        grown = Spans(**{name: Spent(sum_s=total[name], count=count) for name in mean_s})
        at_ns = START_NS + n * TURN_NS + TURN_NS // 2
        pages.append(some_counters(when="during", asked_ns=at_ns - 1, at_ns=at_ns, spans=grown))
    return msgspec.structs.replace(arm, during=tuple(pages))


OWN = {"queue": 0.001, "prefill": 0.020, "decode": 0.300, "whole": 0.321}


def test_histograms_read_around_each_request_tell_of_the_turns_alone() -> None:
    found = where([read_around_each(an_arm(WHOLE, primes=2), OWN)])
    assert found.text == (
        "queue 1.00 ms, prefill 20.0 ms, decode 0.300 s, client and network 79.0 ms of 0.400 s; "
        "0 % unexplained; mean of 4 turns"
    )


def test_a_page_that_grew_by_somebody_else_s_request_makes_it_the_engine_s_mean_again() -> None:
    found = where([read_around_each(an_arm(WHOLE), OWN, at_once=2)])
    assert found.prefill_s == pytest.approx(0.090)
    assert found.text.endswith("mean of 4 requests")


def test_turns_without_a_page_of_their_own_are_in_the_engine_s_mean() -> None:
    whole = read_around_each(an_arm(WHOLE), OWN)
    found = where([msgspec.structs.replace(whole, during=whole.during[:1])])
    assert found.text.endswith("mean of 4 requests")


def test_a_histogram_that_no_page_has_is_not_measured_for_the_turns_either() -> None:
    short = {name: each for name, each in OWN.items() if name != "queue"}
    found = where([read_around_each(an_arm(WHOLE | {"queue": None}), short)])
    assert found.is_own
    assert found.queue_s is None
    assert "the metrics page has no vllm:request_queue_time_seconds" in found.text


def test_cached_and_cold_turns_of_one_engine_have_a_line_each() -> None:
    one = read_around_each(an_arm(WHOLE), OWN)
    cached = msgspec.structs.replace(
        one,
        arm=msgspec.structs.replace(
            one.arm, denominator=msgspec.structs.replace(one.arm.denominator, prefix="warm")
        ),
    )
    other = read_around_each(an_arm(WHOLE), OWN | {"prefill": 0.080})
    lines = where_lines([[cached], [other]])
    assert lines[0].startswith("cached: queue 1.00 ms, prefill 20.0 ms")
    assert lines[1].startswith("cold: queue 1.00 ms, prefill 80.0 ms")


def test_boots_are_joined_by_their_requests() -> None:
    found = where([an_arm(WHOLE, 2), an_arm(WHOLE | {"prefill": 0.010}, 6)])
    assert found.requests == 8
    assert found.prefill_s == pytest.approx((2 * 0.090 + 6 * 0.010) / 8)


seconds = st.floats(0, 1)


@given(queue=seconds, prefill=seconds, decode=seconds, whole=seconds)
def test_whatever_the_server_says_all_parts_add_up_to_the_wall_clock(**means: float) -> None:
    found = where([an_arm(means)])
    parts = (found.queue_s, found.prefill_s, found.decode_s, found.client_s, found.unexplained_s)
    assert None not in parts
    assert sum(each or 0.0 for each in parts) == pytest.approx(found.wall_s)
