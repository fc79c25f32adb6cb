"""Every turn needs a number under its denominator, honestly counted and honestly timed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from pytest_llmperf import record
from pytest_llmperf.denominator import DECODE_THROUGHPUT
from pytest_llmperf.proof import contradictions, findings

if TYPE_CHECKING:
    from pytest_llmperf.evidence import Measured
    from pytest_llmperf.proof import Contradiction
    from tests.proof.conftest import Making


def kinds(measured: Measured) -> list[str]:
    return [each.kind for each in contradictions(measured)]


def only(measured: Measured, kind: str) -> Contradiction:
    return next(each for each in contradictions(measured) if each.kind == kind)


def test_throughput_without_usage_is_refused(making: Making) -> None:
    measured = making.with_usage(making.sound(of="decode_throughput"), completion_tokens=None)
    assert kinds(measured) == ["tokens_unknown"]
    found = only(measured, "tokens_unknown")
    assert found.reason == "8 of 8 turns have no count of output tokens."
    assert found.evidence == "The server's usage gives none, and chunks are not tokens."
    assert found.remedy == (
        "Have the server send usage (stream_options.include_usage), or measure seconds per request."
    )


def test_seconds_per_request_need_no_usage_of_output(making: Making) -> None:
    assert kinds(making.with_usage(making.sound(), completion_tokens=None)) == []


def test_a_buffered_stream_has_no_decode_rate(making: Making) -> None:
    measured = making.with_turns(
        making.sound(of="decode_throughput"),
        lambda n, each: msgspec.structs.replace(each, chunks=each.chunks[:8]) if n < 3 else each,
    )
    found = only(measured, "undefined")
    assert found.reason == (
        "3 of 8 turns have no decode_throughput: "
        "(N - k) / (t_last_token - t_first_token) is undefined."
    )
    assert found.evidence == (
        "3 because 7 token-bearing chunks after the first are too few (at least 8)."
    )
    assert found.remedy == (
        "Ask for longer answers; look for a proxy that buffers the stream and for "
        "--stream-interval; have token counts by chunk (return_token_ids, "
        "continuous_usage_stats)."
    )


def test_a_first_chunk_larger_than_one_step_is_undefined(making: Making) -> None:
    assert kinds(making.sound(of="decode_throughput", tokens_per_chunk=4)) == []
    measured = making.sound(of="decode_throughput", tokens=80, tokens_per_chunk=5)
    assert only(measured, "undefined").evidence == (
        "8 because the first chunk holds 5 tokens, more than one step gives (4)."
    )


def test_the_drafts_of_the_arm_are_what_the_first_chunk_may_hold(making: Making) -> None:
    plain = record.Declared(prefix_caching=True)
    measured = making.sound(of="decode_throughput", declared=plain)
    assert only(measured, "undefined").evidence == (
        "8 because the first chunk holds 3 tokens, more than one step gives (1)."
    )


def test_a_turn_without_stamps_is_undefined(making: Making) -> None:
    measured = making.with_turns(
        making.sound(),
        lambda n, each: (
            msgspec.structs.replace(each, stamps=msgspec.structs.replace(each.stamps, sent_ns=None))
            if n == 0
            else each
        ),
    )
    found = only(measured, "undefined")
    assert found.evidence == "1 because it is not recorded when it was sent."
    assert found.remedy == "Look at these turns' stamps in the evidence."


def test_the_same_turns_may_be_counted_by_another_denominator(making: Making) -> None:
    measured = making.with_usage(making.sound(), completion_tokens=None)
    other = msgspec.structs.replace(DECODE_THROUGHPUT, prefix="warm")
    assert [each.kind for each in contradictions(measured, other)] == ["tokens_unknown"]


def test_a_stream_read_in_one_piece_has_no_rate_to_contradict(making: Making) -> None:
    sound = making.sound(tokens=10, tokens_per_chunk=1)
    turn = next(each for each in sound.requests if each.role == "turn")
    at_once = tuple(
        msgspec.structs.replace(each, at_ns=turn.chunks[-1].at_ns) for each in turn.chunks
    )
    requests = tuple(
        msgspec.structs.replace(each, chunks=at_once) if each is turn else each
        for each in sound.requests
    )
    measured = msgspec.structs.replace(sound, requests=requests)
    assert "peak_below_mean" not in kinds(measured)


def test_a_peak_under_its_mean_fails_the_measurement(making: Making) -> None:
    # Ten chunks of which each is said to hold one token, while usage says forty.
    measured = making.with_usage(making.sound(tokens=10, tokens_per_chunk=1), completion_tokens=40)
    measured = making.with_more(measured, generation_tokens=-40)
    found = only(measured, "peak_below_mean")
    assert found.reason == "8 of 8 turns have a peak rate below their mean rate."
    assert found.evidence == "In candidate.1 the chunks hold 10 tokens, the usage says 40."
    assert found.remedy == "Count tokens by the server's usage or token ids, never by chunks."


def test_a_client_that_is_late_by_a_share_of_the_gap_is_the_bottleneck(making: Making) -> None:
    assert kinds(making.sound(loop_lag_ns=10_000_000)) == []
    measured = making.sound(loop_lag_ns=30_100_000)
    assert kinds(measured) == ["client_bottleneck"]
    found = only(measured, "client_bottleneck")
    assert found.reason == "The client was the bottleneck in 8 of 8 turns."
    assert found.evidence == (
        "There its event loop ran late by 30.1 ms (99th percentile), "
        "the gap between chunks was 20.0 ms; half of it is allowed."
    )
    assert found.remedy == "Give the client a core of its own, or run it on another machine."


@pytest.mark.parametrize(("late", "valid"), [(1, True), (3, True), (4, False)])
def test_a_pause_of_the_machine_is_told_and_a_bottleneck_refused(
    making: Making, late: int, valid: bool
) -> None:
    measured = making.with_turns(
        making.sound(turns=30),
        lambda n, each: msgspec.structs.replace(each, loop_lag_ns=10**8) if n < late else each,
    )
    assert kinds(measured) == ([] if valid else ["client_bottleneck"])
    if valid:
        (found,) = findings(measured)
        turns = f"{late} of 30 turns"
        assert found.text == (
            f"In {turns} the client's event loop ran late by more than half of the "
            "gap between chunks."
        )


def test_a_lag_that_was_not_measured_accuses_nobody(making: Making) -> None:
    assert kinds(making.sound(loop_lag_ns=None)) == []


@pytest.mark.parametrize(("declared", "valid"), [(2240, True), (2350, True), (4096, False)])
def test_a_prompt_is_as_long_as_it_says(making: Making, declared: int, valid: bool) -> None:
    measured = making.sound(declared_prompt_tokens=declared)
    assert kinds(measured) == ([] if valid else ["prompt_length"])
    if not valid:
        found = only(measured, "prompt_length")
        assert found.reason == "8 of 8 turns have a prompt of undeclared length."
        assert found.evidence == (
            "Declared 4,096 tokens, the server's usage says 2,240; 5 % is allowed."
        )
        assert found.remedy == (
            "Measure the prompt with the server's own tokenizer and declare that length."
        )


def test_turns_of_unequal_length_are_told(making: Making) -> None:
    measured = making.with_usage(making.sound(), slice(0, 1), prompt_tokens=2500)
    measured = making.with_more(measured, prompt_tokens=260, prefix_queries=260)
    assert kinds(measured) == []
    assert [each.text for each in findings(measured)] == [
        "Prompts are 2,240 to 2,500 tokens long: their spread is part of the numbers' spread."
    ]


def test_a_count_by_tokenizer_is_told(making: Making) -> None:
    measured = making.sound(tokens_from="retokenised")
    assert [each.text for each in findings(measured)] == [
        "8 of 8 turns have their output counted by a tokenizer, not by the server."
    ]


def test_prompt_tokens_that_are_counted_after_the_cache_prove_nothing(making: Making) -> None:
    measured = making.with_usage(making.sound(), prompt_tokens=64)
    measured = making.with_more(measured, prompt_tokens=-8 * 2176)
    found = only(measured, "usage_inconsistent")
    assert found.reason == "8 of 8 turns have a usage that cannot be."
    assert found.evidence == "In candidate.1: 64 prompt tokens, 2,176 of them cached."
    assert found.remedy == (
        "This server counts prompt tokens after the cache; measure with prefix='any'."
    )
