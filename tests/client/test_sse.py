"""Bytes to events by the standard: cases S10, S11 and S12, and every way of cutting the bytes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmperf.stream.sse import Event, Parser


def parse(*reads: bytes) -> list[Event]:
    """Feed the reads with stamps 1, 2, 3..."""
    parser = Parser()
    return [event for at, read in enumerate(reads, start=1) for event in parser.feed(read, at)]


def data(*reads: bytes) -> list[str]:
    return [event.data for event in parse(*reads)]


def leftover(*reads: bytes) -> bytes:
    parser = Parser()
    for read in reads:
        parser.feed(read, 0)
    return parser.leftover()


class TestLineEndsS11:
    def test_a_crlf_cut_between_reads_is_one_line_end(self) -> None:
        assert data(b'data:{"a":1}\r', b'\n\r\ndata: {"a":2}\n\n') == ['{"a":1}', '{"a":2}']

    @pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
    def test_each_of_the_three_line_ends_will_do(self, end: bytes) -> None:
        assert data(b"data: a" + end + end + b"data: b" + end + end) == ["a", "b"]

    def test_mixed_line_ends_will_do(self) -> None:
        assert data(b"data: a\rdata: b\ndata: c\r\n\r\n") == ["a\nb\nc"]

    def test_a_carriage_return_at_the_end_of_a_read_does_not_delay_a_complete_event(self) -> None:
        assert parse(b"data: a\r\n\r", b"\n") == [Event(1, "a")]

    def test_the_late_line_feed_ends_no_further_line(self) -> None:
        assert data(b"data: a\r", b"\n", b"data: b\r", b"\n\r\n") == ["a\nb"]

    def test_a_line_feed_after_an_empty_read_still_belongs_to_its_carriage_return(self) -> None:
        assert data(b"data: a\r", b"", b"\ndata: b\r", b"", b"\r") == ["a\nb"]

    def test_only_one_late_line_feed_is_swallowed(self) -> None:
        assert data(b"data: a\r", b"\n\n") == ["a"]

    def test_at_most_one_space_after_the_colon_is_dropped(self) -> None:
        assert data(b"data:a\n\ndata: a\n\ndata:  a\n\n") == ["a", "a", " a"]


class TestCommentsS10:
    def test_comments_dispatch_nothing(self) -> None:
        assert parse(b": ping\n\n" * 3, b":\n\n", b"data: a\n\n") == [Event(3, "a")]

    def test_an_event_with_empty_data_is_ignored(self) -> None:
        assert parse(b"data\n\n", b"data:\n\n", b"data: \n\n", b"event: ping\n\n") == []

    def test_the_type_of_an_ignored_event_does_not_stick_to_the_next(self) -> None:
        assert parse(b"event: ping\n\ndata: a\n\n") == [Event(1, "a")]

    def test_a_comment_inside_an_event_leaves_it_whole(self) -> None:
        assert data(b"data: a\n: ping\ndata: b\n\n") == ["a\nb"]


class TestTextS12:
    TEXT = '"é🙂\u2028x\u0085y\u2029"'

    def test_raw_text_read_byte_by_byte_stays_whole(self) -> None:
        sent = f"data: {self.TEXT}\n\n".encode()
        assert data(*(bytes([byte]) for byte in sent)) == [self.TEXT]

    def test_line_breaks_that_are_none_do_not_cut(self) -> None:
        assert data(b"data: a\x0bb\x0cc\xe2\x80\xa8d\xc2\x85e\n\n") == ["a\x0bb\x0cc\u2028d\x85e"]

    def test_bytes_that_are_no_utf_8_become_replacement_characters(self) -> None:
        assert data(b"data: a\xffb\n\n") == ["a\ufffdb"]

    @pytest.mark.parametrize("cut", range(4))
    def test_a_byte_order_mark_at_the_beginning_is_dropped(self, cut: int) -> None:
        sent = b"\xef\xbb\xbfdata: a\n\n"
        assert data(sent[:cut], sent[cut:]) == ["a"]

    def test_a_byte_order_mark_anywhere_else_is_not(self) -> None:
        assert data(b"data: a\n\n\xef\xbb\xbfdata: b\n\n") == ["a"]

    def test_the_beginning_of_a_mark_that_is_none_is_not_lost(self) -> None:
        assert leftover(b"\xef\xbb") == b"\xef\xbb"


class TestFields:
    def test_id_event_and_retry_are_known(self) -> None:
        parser = Parser()
        events = parser.feed(b"id: 7\nevent: error\nretry: 250\ndata: a\n\ndata: b\n\n", 1)
        assert events == [Event(1, "a", "error", "7"), Event(1, "b", "message", "7")]
        assert parser.retry_ms == 250

    def test_an_id_with_a_null_and_a_retry_that_is_no_number_are_ignored(self) -> None:
        parser = Parser()
        assert parser.feed("id: a\0b\nretry: ²\nretry: -1\ndata: a\n\n".encode(), 1) == [
            Event(1, "a")
        ]
        assert parser.retry_ms is None

    def test_unknown_fields_are_ignored(self) -> None:
        assert data(b"datum: x\ndata : y\nData: z\ndata: a\n\n") == ["a"]


class TestTruncation:
    def test_an_event_without_its_blank_line_is_discarded_and_left_over(self) -> None:
        assert data(b"data: a\n\ndata: b\n") == ["a"]
        assert leftover(b"data: a\n\ndata: b\n") == b"data: b"

    def test_a_line_without_its_end_is_left_over(self) -> None:
        assert leftover(b'data: a\ndata: {"b') == b'data: a\ndata: {"b'

    @pytest.mark.parametrize(
        "sent", [b"", b"data: a\n\n", b"data: a\r\n\r", b": ping", b"data: a\n\n: p"]
    )
    def test_nothing_is_left_over_where_an_event_may_end(self, sent: bytes) -> None:
        assert leftover(sent) == b""


LINES = st.sampled_from(
    [
        *(b"data: a", b"data:b", b"data", b": ping", b":", b"event: error", b"id: 1", b"retry: 5"),
        *(b"", b"", b"", "data: é🙂\u2028\u0085".encode(), b"\xef\xbb\xbfdata: c", b"nonsense"),
    ]
)
ENDS = st.sampled_from([b"\n", b"\r", b"\r\n"])
STREAMS = st.lists(st.tuples(LINES, ENDS)).map(lambda lines: b"".join(a + b for a, b in lines))


def cut(sent: bytes, places: Sequence[int]) -> list[bytes]:
    bounds = [0, *sorted(place % (len(sent) + 1) for place in places), len(sent)]
    return [sent[start:end] for start, end in pairwise(bounds)]


class TestAnyCut:
    @given(STREAMS, st.lists(st.integers(min_value=0)))
    def test_any_split_of_the_same_bytes_gives_the_same_events(
        self, sent: bytes, places: list[int]
    ) -> None:
        whole, split = parse(sent), parse(*cut(sent, places))
        assert [each[1:] for each in split] == [each[1:] for each in whole]
        assert leftover(*cut(sent, places)) == leftover(sent)

    @given(STREAMS, st.lists(st.integers(min_value=0)))
    def test_each_stamp_is_that_of_the_read_which_completed_the_event(
        self, sent: bytes, places: list[int]
    ) -> None:
        reads = cut(sent, places)
        for number in range(len(reads)):
            seen = parse(*reads[: number + 1])
            # What is complete after so many reads is there, and was not stamped later than that.
            assert [e.data for e in seen] == [e.data for e in parse(b"".join(reads[: number + 1]))]
            assert all(event.at_ns <= number + 1 for event in seen)
        stamps = [event.at_ns for event in parse(*reads)]
        assert stamps == sorted(stamps)

    @given(st.binary())
    def test_no_bytes_at_all_raise(self, sent: bytes) -> None:
        parser = Parser()
        parser.feed(sent, 0)
        parser.leftover()
