"""The server's queue over time is read off its own pages, and unread where they say nothing."""

from __future__ import annotations

from pytest_llmperf.load.burst import backlog
from pytest_llmperf.record import Counters
from pytest_llmperf.testing import some_counters


def read(at_s: float, running: float | None, waiting: float | None) -> Counters:
    return some_counters(
        at_ns=round(at_s * 1e9), requests_running=running, requests_waiting=waiting
    )


BURST = [read(0.5, 64, 100), read(1.0, 128, 372), read(3.0, 128, 60), read(4.0, 90, 0)]
DRAINED = [*BURST, read(5.0, 0, 0)]


class TestABacklog:
    def test_has_its_peaks_and_the_time_until_it_was_gone(self) -> None:
        found = backlog(DRAINED, since_ns=0)
        assert found.most_open is not None
        assert found.most_waiting is not None
        assert (found.most_open.open, found.most_waiting.waiting) == (500, 372)
        assert (found.queue_empty_s, found.drained_s, found.longest_gap_s) == (4.0, 5.0, 2.0)

    def test_says_so_in_a_line(self) -> None:
        assert backlog(DRAINED, since_ns=0).words == (
            "at most 500 open at the server, 372 waiting after 1.00 s, queue empty after 4.00 s"
            " (5 readings, at most 2.00 s apart)"
        )

    def test_that_was_never_seen_empty_again_has_no_time_to_drain(self) -> None:
        found = backlog(BURST[:3], since_ns=0)
        assert found.queue_empty_s is None
        assert "372 waiting after 1.00 s, queue never seen empty again" in found.words

    def test_without_a_queue_says_that_none_was_seen(self) -> None:
        found = backlog([read(0.5, 8, 0)], since_ns=0)
        assert found.words == "at most 8 open at the server, none seen waiting (1 reading)"

    def test_counts_from_when_the_burst_was_due(self) -> None:
        found = backlog(DRAINED, since_ns=500_000_000)
        assert found.queue_empty_s == 3.5

    def test_that_could_not_be_read_was_not_measured_and_is_no_zero(self) -> None:
        found = backlog([read(1.0, None, None)], since_ns=0)
        assert (found.words, found.unread) == ("the server's queue was not measured", 1)
        assert found.most_open is None

    def test_is_in_time_however_the_pages_came(self) -> None:
        assert backlog(DRAINED[::-1], since_ns=0) == backlog(DRAINED, since_ns=0)
