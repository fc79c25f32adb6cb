"""What proves one stream would void a burst: its fates are counted, and its order tells nothing."""

from __future__ import annotations

import msgspec

from pytest_llmperf.denominator import BURST, SINGLE_STREAM
from pytest_llmperf.evidence import Measured
from pytest_llmperf.proof import complete, load, steady, values
from pytest_llmperf.proof.window import Window
from pytest_llmperf.record import Arm, Request
from pytest_llmperf.testing import a_measurement, some_counters
from tests.burst.conftest import DUE_NS, answered, failed


def a_window(waits_s: list[float], *, is_burst: bool) -> Window:
    of = msgspec.structs.replace(BURST, streams=len(waits_s)) if is_burst else SINGLE_STREAM
    arm = Arm(name="candidate", boot_id="b0", engine="gemma", denominator=of)
    sent = [
        msgspec.structs.replace(answered(wait_s), request_id=f"r{number}", position=number, block=0)
        for number, wait_s in enumerate(waits_s)
    ]
    lost = msgspec.structs.replace(failed("reset"), request_id="lost", position=len(sent))
    start = a_measurement(arms=(arm,), turns=len(sent) + 1)
    return Window(Measured(measurement=start, arm=arm, requests=(*sent, lost)))


def test_a_lost_request_is_a_fate_of_a_burst_and_a_fault_of_anything_else() -> None:
    assert complete.failed_turns(a_window([1.0], is_burst=True)) is None
    assert complete.failed_turns(a_window([1.0], is_burst=False)) is not None


def test_the_order_in_which_a_queue_is_answered_is_no_sign_of_warming_up() -> None:
    last_come_first_served = [float(wait_s) for wait_s in range(24, 0, -1)]
    assert steady.warming(a_window(last_come_first_served, is_burst=True)) is None
    assert steady.warming(a_window(last_come_first_served, is_burst=False)) is not None


def lagging(window: Window, lag_s: float) -> Window:
    late = [
        msgspec.structs.replace(each, loop_lag_ns=round(lag_s * 1e9))
        for each in window.measured.requests
    ]
    return Window(msgspec.structs.replace(window.measured, requests=tuple(late)))


def test_a_client_late_by_little_of_the_wait_is_no_bottleneck_of_a_burst() -> None:
    window = a_window([10.0] * 9, is_burst=True)
    assert values.client_bottleneck(lagging(window, 0.1)) is None
    assert values.client_bottleneck(lagging(window, 0.3)) is not None


def seen(window: Window, *open_at: int, besides: tuple[Request, ...] = ()) -> Window:
    """The same burst with a page of the server every tenth of a second from when it was due."""
    pages = tuple(
        some_counters(
            when="during",
            at_ns=DUE_NS + round(number * 1e8),
            requests_running=float(number_open),
            requests_waiting=0.0,
        )
        for number, number_open in enumerate(open_at, start=1)
    )
    requests = (*window.measured.requests, *besides)
    return Window(msgspec.structs.replace(window.measured, during=pages, requests=requests))


BURST_OF_40 = [3.0] * 40


def test_a_burst_that_something_lets_in_two_by_two_is_held_back() -> None:
    found = load.burst_held_back(seen(a_window(BURST_OF_40, is_burst=True), 2, 2, 2, 2, 2, 1))
    assert found is not None
    assert found.kind == "held_back"
    assert "at most 2 running or waiting" in found.evidence


def test_a_burst_of_which_one_page_shows_half_was_there() -> None:
    window = seen(a_window(BURST_OF_40, is_burst=True), 0, 0, 0, 0, 0, 39)
    assert load.burst_held_back(window) is None
    assert load.burst_unseen(window) is None


def test_a_burst_on_too_few_pages_is_told_not_to_be_shown() -> None:
    window = seen(a_window(BURST_OF_40, is_burst=True), 0, 0)
    assert load.burst_held_back(window) is None
    found = load.burst_unseen(window)
    assert found is not None
    assert "2 pages of it came" in found.text


def test_whoever_was_turned_away_need_not_be_seen() -> None:
    refused = tuple(
        msgspec.structs.replace(failed("refused", status=503), request_id=f"n{n}", position=50 + n)
        for n in range(100)
    )
    window = seen(a_window(BURST_OF_40, is_burst=True), 30, 30, besides=refused)
    assert load.burst_held_back(window) is None
    assert load.burst_unseen(window) is None
