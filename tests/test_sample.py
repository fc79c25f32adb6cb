"""One value a turn under a denominator, or the reason why there is none."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmperf import record
from pytest_llmperf.denominator import (
    CACHED_TURN,
    DECODE_THROUGHPUT,
    SINGLE_STREAM,
    TIME_TO_FIRST_TOKEN,
    Denominator,
)
from pytest_llmperf.sample import (
    every_denominator,
    inter_chunk_gap_s,
    reason_undefined,
    tokens_per_chunk,
    value,
    waits,
)
from pytest_llmperf.testing import a_request

WALL_THROUGHPUT = Denominator(name="wall", clock="wall", unit="output_token", prefix="any")
MS = 1_000_000


def bundled(**fields: Any) -> record.Request:  # noqa: ANN401 - any field of the record
    """Ten chunks, 40 ms apart, of four tokens each; the first token after 100 ms."""
    return a_request(**{"tokens": 40, "tokens_per_chunk": 4, "gap_s": 0.04, **fields})


def test_each_clock_has_its_own_number() -> None:
    turn = bundled()
    assert value(turn, SINGLE_STREAM) == pytest.approx(0.46)
    assert value(turn, TIME_TO_FIRST_TOKEN) == pytest.approx(0.1)
    assert value(turn, CACHED_TURN) == value(turn, SINGLE_STREAM)
    assert value(turn, WALL_THROUGHPUT) == pytest.approx(40 / 0.46)


def test_tokens_are_counted_and_not_chunks() -> None:
    # 25 chunks a second, 100 tokens a second: (40 - 4) / 0.36 s.
    assert value(bundled(), DECODE_THROUGHPUT, drafts=3) == pytest.approx(100)
    assert inter_chunk_gap_s(bundled()) == pytest.approx(0.04)
    assert tokens_per_chunk(bundled()) == 4.0


def test_the_usage_chunk_and_the_end_of_the_stream_extend_nothing() -> None:
    turn = bundled()
    late = msgspec.structs.replace(
        turn, stamps=msgspec.structs.replace(turn.stamps, closed_ns=10**12)
    )
    assert value(late, SINGLE_STREAM) == value(turn, SINGLE_STREAM)


def test_a_one_token_answer_has_no_decode_rate() -> None:
    turn = a_request(tokens=1)
    assert value(turn, DECODE_THROUGHPUT) is None
    assert reason_undefined(turn, DECODE_THROUGHPUT) == "its interval is 0 ns long"
    spread = msgspec.structs.replace(
        turn, stamps=msgspec.structs.replace(turn.stamps, last_token_ns=2 * 10**9)
    )
    assert reason_undefined(spread, DECODE_THROUGHPUT) == (
        "an answer of one token has no decode phase"
    )
    assert value(turn, SINGLE_STREAM) == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("turn", "denominator", "reason"),
    [
        (
            bundled(failure=record.Failure(kind="timeout", detail="60 s")),
            SINGLE_STREAM,
            "the request failed (timeout)",
        ),
        (bundled(stamps=record.Stamps()), SINGLE_STREAM, "it is not recorded when it was sent"),
        (
            bundled(stamps=record.Stamps(sent_ns=1)),
            SINGLE_STREAM,
            "it is not recorded when its last token came",
        ),
        (
            bundled(stamps=record.Stamps(sent_ns=1, last_token_ns=9)),
            TIME_TO_FIRST_TOKEN,
            "it is not recorded when its first token came",
        ),
        (
            bundled(stamps=record.Stamps(sent_ns=9, last_token_ns=1)),
            SINGLE_STREAM,
            "its interval is -8 ns long",
        ),
        (
            bundled(usage=record.Usage()),
            WALL_THROUGHPUT,
            "the server's usage gives no count of output tokens",
        ),
        (
            bundled(usage=record.Usage(completion_tokens=0)),
            WALL_THROUGHPUT,
            "the server's usage says 0 output tokens",
        ),
        (
            bundled(usage=record.Usage(completion_tokens=-3)),
            DECODE_THROUGHPUT,
            "the server's usage says -3 output tokens",
        ),
        (
            bundled(tokens=32),
            DECODE_THROUGHPUT,
            "7 token-bearing chunks after the first are too few (at least 8)",
        ),
        (
            bundled(chunks=()),
            DECODE_THROUGHPUT,
            "0 token-bearing chunks after the first are too few (at least 8)",
        ),
        (
            bundled(chunks=tuple(record.Chunk(at_ns=each) for each in range(10))),
            DECODE_THROUGHPUT,
            "it is not known how many tokens the first chunk holds",
        ),
        (
            bundled(),
            DECODE_THROUGHPUT,
            "the first chunk holds 4 tokens, more than one step gives (1)",
        ),
        (
            bundled(
                usage=record.Usage(completion_tokens=4),
                chunks=tuple(record.Chunk(at_ns=n, tokens=4 * (n == 0)) for n in range(10)),
            ),
            DECODE_THROUGHPUT,
            "the first chunk holds 4 tokens, more than one step gives (1)",
        ),
    ],
)
def test_a_value_that_cannot_be_formed_has_a_reason(
    turn: record.Request, denominator: Denominator, reason: str
) -> None:
    assert value(turn, denominator) is None
    assert reason_undefined(turn, denominator) == reason


def test_a_decode_in_which_nothing_came_after_the_first_chunk_is_undefined() -> None:
    turn = bundled(
        usage=record.Usage(completion_tokens=4),
        chunks=tuple(record.Chunk(at_ns=n, tokens=4 * (n == 0)) for n in range(10)),
    )
    assert reason_undefined(turn, DECODE_THROUGHPUT, drafts=3) == (
        "no token came after the first chunk"
    )


@pytest.mark.parametrize(("chunks", "defined"), [(9, True), (8, False)])
def test_eight_chunks_after_the_first_are_enough(chunks: int, defined: bool) -> None:
    turn = a_request(tokens=chunks)
    assert (value(turn, DECODE_THROUGHPUT) is not None) is defined


@pytest.mark.parametrize(("drafts", "defined"), [(None, False), (0, False), (2, False), (3, True)])
def test_the_first_chunk_holds_at_most_one_step(drafts: int | None, defined: bool) -> None:
    assert (value(bundled(), DECODE_THROUGHPUT, drafts) is not None) is defined


def test_one_run_is_shown_under_every_denominator() -> None:
    rows = {each.label: each for each in every_denominator([bundled(), bundled()], drafts=3)}
    assert {label: round(each.median or 0, 6) for label, each in rows.items()} == {
        "wall clock": 0.46,
        "wall-clock throughput": round(40 / 0.46, 6),
        "time to first token": 0.1,
        "decode throughput": 100.0,
        "inter-chunk gap": 0.04,
        "tokens per chunk": 4.0,
    }
    assert [each.unit for each in rows.values()] == ["s", "tok/s", "s", "tok/s", "s", "tok/chunk"]
    assert [each.n for each in rows.values()] == [2] * 6
    assert rows["decode throughput"].formula == "(N - k) / (t_last_token - t_first_token)"
    assert rows["decode throughput"].clock == "decode"
    assert rows["inter-chunk gap"].clock is None


def test_a_row_that_cannot_be_counted_says_why_and_is_not_zero() -> None:
    failed = bundled(failure=record.Failure(kind="reset", detail="gone"))
    rows = {each.label: each for each in every_denominator([a_request(tokens=1), failed])}
    decode, gap, bundle = (
        rows[each] for each in ("decode throughput", "inter-chunk gap", "tokens per chunk")
    )
    assert (decode.median, decode.n, decode.undefined) == (None, 0, 2)
    assert decode.why == "its interval is 0 ns long"
    assert (gap.median, gap.why) == (None, "fewer than two chunks bear tokens")
    assert (bundle.median, bundle.n, bundle.why) == (1.0, 1, "the request failed (reset)")
    assert [each.median for each in every_denominator([])] == [None] * 6


def test_the_first_things_to_wait_for_are_told_apart() -> None:
    stamps = record.Stamps(
        sent_ns=0,
        first_byte_ns=5 * MS,
        first_event_ns=6 * MS,
        first_token_ns=214 * MS,
        first_visible_ns=230 * MS,
    )
    found = {each.label: each.median for each in waits([bundled(stamps=stamps)])}
    assert found == {
        "time to first byte": pytest.approx(0.005),
        "time to first event": pytest.approx(0.006),
        "time to first token": pytest.approx(0.214),
        "time to first visible": pytest.approx(0.230),
        "time to first answer": None,
    }


turns = st.builds(
    lambda first_ms, gap_ms, tokens, each, cached: a_request(
        first_s=first_ms / 1000,
        gap_s=gap_ms / 1000,
        tokens=tokens,
        tokens_per_chunk=each,
        cached=cached,
    ),
    st.integers(1, 2000),
    st.integers(0, 100),
    st.integers(1, 60),
    st.integers(1, 5),
    st.sampled_from([None, 0, 32]),
)
denominators = st.sampled_from(
    [SINGLE_STREAM, TIME_TO_FIRST_TOKEN, DECODE_THROUGHPUT, WALL_THROUGHPUT]
)


@given(turns, denominators, st.integers(0, 4), st.integers(0, 10**15))
def test_the_clocks_origin_changes_no_value(
    turn: record.Request, denominator: Denominator, drafts: int, by_ns: int
) -> None:
    stamps = {
        name: None if at is None else at + by_ns
        for name, at in msgspec.structs.asdict(turn.stamps).items()
    }
    moved = msgspec.structs.replace(
        turn,
        stamps=record.Stamps(**stamps),
        chunks=tuple(
            msgspec.structs.replace(each, at_ns=each.at_ns + by_ns) for each in turn.chunks
        ),
    )
    assert value(moved, denominator, drafts) == value(turn, denominator, drafts)
    assert inter_chunk_gap_s(moved) == inter_chunk_gap_s(turn)


@given(turns, denominators, st.integers(0, 4))
def test_a_value_is_finite_and_positive_or_has_a_reason(
    turn: record.Request, denominator: Denominator, drafts: int
) -> None:
    number = value(turn, denominator, drafts)
    assert (number is None) == (reason_undefined(turn, denominator, drafts) is not None)
    assert number is None or 0 < number < math.inf


@given(st.lists(turns, min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_the_order_of_turns_changes_no_row(requests: list[record.Request], chance: Any) -> None:  # noqa: ANN401 - a random.Random
    shuffled = list(requests)
    chance.shuffle(shuffled)
    assert every_denominator(shuffled, 3) == every_denominator(requests, 3)
    assert waits(shuffled) == waits(requests)
