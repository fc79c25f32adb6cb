"""A cached number is refused unless the hit is proven, and the likely cause is named."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from pytest_llmperf.proof import contradictions, evidence_line, expected_hits, findings
from pytest_llmperf.proof.contradiction import Contradiction

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_llmperf.evidence import Measured
    from pytest_llmperf.record import Request
    from tests.proof.conftest import Making


def kinds(measured: Measured) -> list[str]:
    return [each.kind for each in contradictions(measured)]


def only(measured: Measured, kind: str) -> Contradiction:
    return next(each for each in contradictions(measured) if each.kind == kind)


@pytest.mark.parametrize(
    ("common", "speculation", "hits"),
    [
        (600, True, 544),
        (600, False, 576),
        (66, True, 32),
        (40, True, 0),
        (31, True, 0),
        (0, False, 0),
        (2208, True, 2176),
        (2207, True, 2144),
    ],
)
def test_expected_hits_are_whole_blocks_one_less_with_a_drafter(
    common: int, speculation: bool, hits: int
) -> None:
    assert expected_hits(common, 32, speculation) == hits


def test_expected_hits_are_unknown_without_common_prefix_or_block_size() -> None:
    assert expected_hits(None, 32, speculation=False) is None
    assert expected_hits(600, None, speculation=False) is None
    assert expected_hits(600, 0, speculation=False) is None


def test_a_cached_turn_whose_hits_are_proven_is_valid(making: Making) -> None:
    measured = making.sound(turns=30)
    assert contradictions(measured) == ()
    assert findings(measured) == ()
    assert evidence_line(measured) == (
        "30 of 30 turns cached, 2,176 of 2,240 tokens; "
        "470 drafts, acceptance length 3.0 (67 % of drafted tokens); machine not watched"
    )


def test_a_cached_count_that_is_missing_names_the_flag(making: Making) -> None:
    measured = making.with_usage(making.sound(), cached_tokens=None)
    found = only(measured, "cached_unknown")
    assert found.reason == "8 of 8 turns do not say how many tokens were cached."
    assert found.evidence == (
        "Usage has no cached_tokens; the counters say: 17,408 hits, 20,160 lookups."
    )
    assert found.remedy == (
        "Start vLLM with --enable-prompt-tokens-details; only usage proves a cached turn."
    )
    assert evidence_line(measured).startswith("cached tokens not measured; ")


def test_one_turn_without_a_cached_count_is_enough(making: Making) -> None:
    measured = making.with_usage(making.sound(), slice(3, 4), cached_tokens=None)
    assert kinds(measured) == ["cached_unknown"]


def test_unknown_is_not_zero_and_zero_is_not_unknown(making: Making) -> None:
    zero = making.with_usage(making.sound(), cached_tokens=0)
    unknown = making.with_usage(making.sound(), cached_tokens=None)
    assert "cached_unknown" not in kinds(zero)
    assert "not_cached" not in kinds(unknown)


def test_no_hit_and_no_lookup_says_prefix_caching_off(making: Making) -> None:
    measured = making.with_usage(making.sound(), cached_tokens=0)
    found = only(making.with_after(measured, prefix_hits=0.0, prefix_queries=0.0), "not_cached")
    assert found.reason == "8 of 8 turns were not cached as declared."
    assert found.evidence == (
        "There 0 tokens were cached where 2,176 were expected; the counters say: 0 hits, 0 lookups."
    )
    assert found.remedy == "Prefix caching off? Start vLLM with --enable-prefix-caching."


def test_lookups_without_a_hit_say_that_blocks_were_not_kept(making: Making) -> None:
    measured = making.with_usage(making.sound(), cached_tokens=0)
    assert only(making.with_after(measured, prefix_hits=0.0), "not_cached").remedy == (
        "The cache was asked and never hit: are blocks kept (--prefix-cache-retention-interval), "
        "and is the prompt the same from its first token on?"
    )


def test_every_second_turn_missing_names_the_retention_interval(making: Making) -> None:
    found = only(
        making.with_usage(making.sound(), slice(0, None, 2), cached_tokens=0), "not_cached"
    )
    assert found.reason == "4 of 8 turns were not cached as declared."
    assert found.remedy == (
        "The cache kept some of the prefix only: set --prefix-cache-retention-interval to the "
        "block size (sliding-window layers keep few blocks), or give the KV cache more memory."
    )


def test_one_block_less_than_expected_is_already_too_little(making: Making) -> None:
    assert kinds(making.with_usage(making.sound(), slice(5, 6), cached_tokens=2144)) == [
        "not_cached"
    ]
    assert kinds(making.with_usage(making.sound(), slice(5, 6), cached_tokens=2208)) == []


def test_a_date_at_the_head_of_the_prompt_leaves_nothing_to_cache(making: Making) -> None:
    measured = making.sound(cached=0, common_prefix_tokens=11, expected_cached_tokens=0)
    found = only(measured, "nothing_cacheable")
    assert found.reason == (
        "In 8 of 8 turns nothing could be cached: "
        "a warm turn without a hit to expect proves nothing."
    )
    assert found.evidence == (
        "The prompt differs from token 11 on, of 2,240; "
        "a cache keeps whole blocks, one less with a drafter."
    )
    assert found.remedy == (
        "Take out what changes at the head of the prompt (a date, a random id), "
        "or measure a longer conversation."
    )
    assert evidence_line(measured).startswith("0 of 8 turns cached, 0 of 2,240 tokens; ")


def test_a_date_a_little_later_is_caught_although_all_expected_hits_came(making: Making) -> None:
    measured = making.sound(cached=64, common_prefix_tokens=100, expected_cached_tokens=64)
    found = only(measured, "prefix_differs")
    assert found.reason == (
        "8 of 8 turns share less than half of their prompt with what was sent before."
    )
    assert found.evidence == "The prompt differs from token 100 on, of 2,240."
    assert found.remedy == (
        "Take out what changes early in the prompt (a date, a random id), "
        "or declare the share that is meant with min_cached_share."
    )


def test_a_declared_share_is_what_counts(making: Making) -> None:
    fields: dict[str, Any] = {
        "cached": 64,
        "common_prefix_tokens": 100,
        "expected_cached_tokens": 64,
    }
    assert kinds(making.sound(measurement={"min_cached_share": 0.02}, **fields)) == []
    short = making.sound(measurement={"min_cached_share": 0.9}, **fields)
    assert only(short, "not_cached").remedy == (
        "The prompt differs from token 100 on, of 2,240: a date or an id at the head of the prompt?"
    )


def test_a_share_that_is_reached_with_fewer_hits_than_possible_is_told(making: Making) -> None:
    measured = making.sound(cached=2048, measurement={"min_cached_share": 0.9})
    assert kinds(making.with_turns(measured, _expecting(2176))) == []
    (found,) = findings(making.with_turns(measured, _expecting(2176)))
    assert found.text == (
        "8 of 8 turns reach the declared share but fewer cached tokens than block size "
        "and common prefix allow (2,048 of 2,176)."
    )


def _expecting(tokens: int) -> Callable[[int, Request], Request]:
    return lambda _, each: msgspec.structs.replace(each, expected_cached_tokens=tokens)


def test_hits_of_any_size_prove_nothing_where_none_are_required(making: Making) -> None:
    measured = making.sound(expected_cached_tokens=None, common_prefix_tokens=None)
    found = only(measured, "requirement_unknown")
    assert found.reason == "For 8 of 8 turns it is not known how many tokens had to be cached."
    assert found.evidence == (
        "The common prefix in tokens is unknown, so a hit of any size proves nothing."
    )
    assert found.remedy == "State min_cached_share in the marker, or serve /tokenize."
    share = {"min_cached_share": 0.9}
    measured = making.sound(
        expected_cached_tokens=None, common_prefix_tokens=None, measurement=share
    )
    assert kinds(measured) == []


def test_a_share_of_an_unknown_prompt_is_unknown(making: Making) -> None:
    measured = making.sound(prompt_tokens=None, measurement={"min_cached_share": 0.9})
    assert only(measured, "requirement_unknown").remedy == (
        "Have the server send usage with prompt_tokens."
    )


def test_a_measurement_that_declares_any_prefix_needs_no_hits(making: Making) -> None:
    measured = making.sound(of="decode_throughput", cached=None)
    assert contradictions(measured) == ()
    assert evidence_line(measured).startswith("cached tokens not measured; ")
