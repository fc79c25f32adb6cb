"""Counters read between two requests: as soon as the last is counted, and no second late one."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_llmperf import record
from pytest_llmperf.errors import EngineError
from pytest_llmperf.measure import Surroundings
from pytest_llmperf.measure.reading import BETWEEN_S, Meter
from pytest_llmperf.testing import a_measurement, a_request


class Server:
    """A metrics page whose counter may lag, on a clock that moves only by sleeping."""

    def __init__(self) -> None:
        self.finished = 0
        self.asked = 0
        self.lags_s = 0.0
        self.broken = False
        self.now_ns = 0
        self.counted_ns = 0

    metrics_page = "/metrics"
    model = "gemma"

    def get_text(self, _page: str) -> str:
        self.asked += 1
        if self.broken:
            raise EngineError("No page.", "It answered 404.", "Ask for it.")
        shown = self.finished
        if self.now_ns < self.counted_ns + self.lags_s * 1e9:
            shown -= 1
        return "".join(
            f'vllm:{name}{{model_name="gemma"}} {value}\n'
            for name, value in (
                ("request_success_total", shown),
                ("num_requests_running", 0),
                ("request_prefill_time_seconds_sum", shown * 0.5),
                ("request_prefill_time_seconds_count", shown),
            )
        )

    def sleep(self, seconds: float) -> None:
        self.now_ns += int(seconds * 1e9)

    def answer(self) -> None:
        self.finished += 1
        self.counted_ns = self.now_ns


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def records() -> list[record.Record]:
    return []


@pytest.fixture
def after_one_request(server: Server, records: list[record.Record]) -> Callable[[], None]:
    """Send one request, then read the counters."""
    start = a_measurement()
    target: Any = SimpleNamespace(arm=start.arms[0], running=server, client=server)
    around = Surroundings(
        add=records.append,
        clock=lambda: server.now_ns,
        sleep=server.sleep,
        tell=lambda _: None,
        seed=1,
    )
    meter = Meter(start, {"candidate": target}, around)
    meter.read("before")

    def send() -> None:
        server.answer()
        meter.count(start.arms[0].boot_id, a_request())
        meter.read_between(target)

    return send


def test_a_page_is_kept_for_each_request_with_its_spans(
    records: list[record.Record], after_one_request: Callable[[], None]
) -> None:
    after_one_request()
    after_one_request()
    pages = [each for each in records if isinstance(each, record.Counters)]
    assert [each.when for each in pages] == ["before", "during", "during"]
    assert [each.spans.prefill for each in pages[1:]] == [
        record.Spent(sum_s=0.5, count=1),
        record.Spent(sum_s=1.0, count=2),
    ]


def test_a_counter_that_lags_a_little_is_waited_for(
    server: Server, records: list[record.Record], after_one_request: Callable[[], None]
) -> None:
    server.lags_s = 0.02
    after_one_request()
    (_, page) = (each for each in records if isinstance(each, record.Counters))
    assert page.requests_finished == 1
    assert server.now_ns >= 20_000_000


def test_a_server_that_counts_too_late_is_not_asked_again(
    server: Server, records: list[record.Record], after_one_request: Callable[[], None]
) -> None:
    server.lags_s = 2 * BETWEEN_S
    after_one_request()
    waited_ns, asked = server.now_ns, server.asked
    assert waited_ns == pytest.approx(BETWEEN_S * 1e9, rel=0.05)
    after_one_request()
    assert (server.now_ns, server.asked) == (waited_ns, asked)
    assert len(records) == 1


def test_a_page_that_fails_is_not_asked_for_again(
    server: Server, records: list[record.Record], after_one_request: Callable[[], None]
) -> None:
    server.broken = True
    after_one_request()
    after_one_request()
    assert server.asked == 2
    assert len(records) == 1
