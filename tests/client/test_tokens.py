"""Rates over chunks: mean, peak, and that a peak is never below its mean (case S4)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmperf.record import Chunk
from pytest_llmperf.stream.tokens import mean_tokens_per_s, peak_tokens_per_s, total_tokens
from pytest_llmperf.testing import a_request

MS = 1_000_000


def chunks(*pairs: tuple[int, int | None]) -> tuple[Chunk, ...]:
    return tuple(Chunk(at_ns=at_ms * MS, tokens=tokens) for at_ms, tokens in pairs)


class TestMean:
    def test_chunks_of_four_at_forty_milliseconds_are_a_hundred_a_second(self) -> None:
        request = a_request(tokens=40, tokens_per_chunk=4, gap_s=0.04)
        assert mean_tokens_per_s(request.chunks) == pytest.approx(100.0)

    def test_tokens_of_the_first_chunk_are_not_counted(self) -> None:
        # 2 tokens in 100 ms, whatever came at once at the beginning.
        assert mean_tokens_per_s(chunks((0, 50), (50, 1), (100, 1))) == pytest.approx(20.0)

    @pytest.mark.parametrize(
        "given", [(), ((0, 1),), ((0, 1), (0, 1)), ((0, 1), (10, None)), ((0, None), (10, 1))]
    )
    def test_there_is_none_without_counts_or_without_time(
        self, given: tuple[tuple[int, int | None], ...]
    ) -> None:
        assert mean_tokens_per_s(chunks(*given)) is None
        assert peak_tokens_per_s(chunks(*given)) is None


class TestPeak:
    def test_the_densest_window_is_found(self) -> None:
        # One token every 100 ms for 1 s, then ten every 100 ms for 1 s.
        slow = [(100 * n, 1) for n in range(11)]
        fast = [(1000 + 100 * n, 10) for n in range(1, 11)]
        assert peak_tokens_per_s(chunks(*slow, *fast)) == pytest.approx(100.0)

    def test_a_stream_shorter_than_the_window_peaks_at_its_mean(self) -> None:
        given = chunks((0, 1), (10, 5), (20, 1))
        assert peak_tokens_per_s(given) == mean_tokens_per_s(given) == pytest.approx(300.0)

    @given(
        st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 9)), max_size=40),
        st.floats(0.0, 3.0),
    )
    def test_it_is_never_below_the_mean(self, gaps: list[tuple[int, int]], window_s: float) -> None:
        at_ms, pairs = 0, []
        for gap, tokens in gaps:
            at_ms += gap
            pairs.append((at_ms, tokens))
        mean = mean_tokens_per_s(chunks(*pairs))
        peak = peak_tokens_per_s(chunks(*pairs), window_s=window_s)
        assert (peak is None) == (mean is None)
        assert peak is None or mean is None or peak >= mean


class TestTotal:
    def test_one_unknown_count_makes_the_total_unknown(self) -> None:
        assert total_tokens(chunks((0, 1), (1, 3))) == 4
        assert total_tokens(chunks((0, 1), (1, None))) is None
        assert total_tokens(()) is None
