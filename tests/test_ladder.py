"""The ladder: what all streams get and what each gets, the knee, and rungs that look wrong."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

from pytest_llmperf.load.burst import backlog
from pytest_llmperf.load.ladder import Rung, Step, dips, knee, rung
from pytest_llmperf.load.picture import ladder_lines, ladder_svg, queue_lines, queue_svg
from pytest_llmperf.record import Failure, Request
from pytest_llmperf.testing import a_request, some_counters
from pytest_llmperf.testing.records import START_NS


def a_rung(streams: int, each_tps: float, tokens: int = 32) -> Rung:
    """A rung of a closed loop in which every stream gets the same."""
    return Rung(
        streams=streams,
        turns=2 * streams,
        aggregate_tps=streams * each_tps,
        per_stream_tps=each_tps,
        first_token_s=0.1,
        wall_s=tokens / each_tps,
        in_flight=streams,
    )


SATURATES_AT_8 = [a_rung(n, 40 if n <= 8 else 320 / n) for n in (1, 2, 4, 8, 16, 32, 64)]


def two_at_once() -> list[Request]:
    """Two streams of two turns each: 16 tokens, 0.1 s to the first, 0.02 s a token."""
    starts = [START_NS, START_NS, START_NS + 400_000_000, START_NS + 400_000_000]
    return [a_request(tokens=16, first_s=0.1, gap_s=0.02, start_ns=start) for start in starts]


class TestARung:
    def test_shows_all_streams_and_each_stream_apart(self) -> None:
        found = rung(two_at_once(), streams=2)
        assert found is not None
        assert found.aggregate_tps == pytest.approx(64 / 0.8)
        assert found.per_stream_tps == pytest.approx(16 / 0.4)
        assert found.first_token_s == pytest.approx(0.1)
        assert found.in_flight == pytest.approx(2.0)

    def test_is_nothing_where_a_turn_failed(self) -> None:
        broken = a_request(failure=Failure(kind="timeout", detail=""))
        assert rung([*two_at_once(), broken], streams=2) is None

    def test_together_is_never_less_than_each(self) -> None:  # D13
        found = rung(two_at_once(), streams=2)
        assert found is not None
        assert found.aggregate_tps >= found.per_stream_tps


class TestTheKnee:
    def test_is_where_throughput_over_latency_is_greatest(self) -> None:
        found = knee(SATURATES_AT_8)
        assert found is not None
        assert found.streams == 8

    def test_is_beyond_a_ladder_that_never_saturates(self) -> None:
        assert knee([a_rung(n, 40) for n in (1, 2, 4)]) is None

    def test_is_at_one_stream_where_more_bring_nothing(self) -> None:
        found = knee([a_rung(n, 40 / n) for n in (1, 2, 4)])
        assert found is not None
        assert found.streams == 1


class TestADip:  # D14
    def test_is_a_rung_whose_streams_get_less_than_those_of_a_greater_one(self) -> None:
        published = [a_rung(4, 36), a_rung(8, 20), a_rung(16, 23)]
        assert dips(published) == (8,)

    def test_is_a_rung_below_both_of_its_neighbours(self) -> None:
        assert dips([a_rung(4, 25), a_rung(8, 10), a_rung(16, 7.5)]) == (8,)

    def test_is_no_fall_within_noise_and_no_fall_at_the_end(self) -> None:
        assert dips([a_rung(4, 36), a_rung(8, 22), a_rung(16, 23)]) == ()
        assert dips([a_rung(8, 40), a_rung(16, 15)]) == ()

    def test_healed_where_the_second_try_was_faster_by_more_than_noise(self) -> None:
        first = a_rung(8, 20)
        assert Step(rung=a_rung(8, 30), first_try=first).healed
        assert not Step(rung=a_rung(8, 21), first_try=first).healed


class TestThePicture:
    def test_of_a_ladder_keeps_both_tries_and_marks_the_knee(self) -> None:
        steps = [Step(rung=each) for each in SATURATES_AT_8]
        steps[2] = Step(rung=SATURATES_AT_8[2], first_try=a_rung(4, 10))
        assert ladder_lines(steps, knee(SATURATES_AT_8)) == (
            "streams    together        each 1st token",
            "      1  40.0 tok/s  40.0 tok/s   0.100 s █",
            "      2  80.0 tok/s  40.0 tok/s   0.100 s ██",
            "      4  40.0 tok/s  10.0 tok/s   0.100 s first try, slower than a greater rung",
            "      4   160 tok/s  40.0 tok/s   0.100 s █████",
            "      8   320 tok/s  40.0 tok/s   0.100 s ██████████ knee",
            "     16   320 tok/s  20.0 tok/s   0.100 s ██████████",
            "     32   320 tok/s  10.0 tok/s   0.100 s ██████████",
            "     64   320 tok/s  5.00 tok/s   0.100 s ██████████",
        )

    def test_of_a_queue_is_blank_where_it_was_not_read(self) -> None:
        pages = [
            some_counters(at_ns=round(at * 1e9), requests_running=1.0, requests_waiting=waiting)
            for at, waiting in ((0.0, 400.0), (1.0, 200.0), (2.0, 0.0))
        ]
        assert queue_lines(backlog(pages, since_ns=0)) == (
            "waiting at the server, 0 to 400:",
            f"█{' ' * 23}▅{' ' * 22}▁",
            f"0.00 s{' ' * 36}2.00 s",
        )

    def test_of_one_reading_is_none(self) -> None:
        assert queue_lines(backlog([some_counters()], since_ns=0)) == ()

    def test_as_svg_is_a_document_with_a_line_for_each_curve(self) -> None:
        steps = [Step(rung=each) for each in SATURATES_AT_8]
        for drawn in (
            ladder_svg(steps, knee(SATURATES_AT_8), "a <title>"),
            queue_svg(backlog([some_counters()], since_ns=0), "one reading"),
        ):
            tree = ET.fromstring(drawn)  # noqa: S314 - our own text
            assert len(tree.findall("{http://www.w3.org/2000/svg}polyline")) == 2
