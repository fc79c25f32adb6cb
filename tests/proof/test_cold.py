"""A cold number is refused where any of it was cached, or where nobody says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pytest_llmperf.proof import contradictions, evidence_line, findings

if TYPE_CHECKING:
    from pytest_llmperf.evidence import Measured
    from tests.proof.conftest import Making


def kinds(measured: Measured) -> list[str]:
    return [each.kind for each in contradictions(measured)]


@pytest.fixture
def cold(making: Making) -> Measured:
    return making.sound(of="single_stream")


def test_cold_turns_without_a_hit_are_valid(cold: Measured) -> None:
    assert contradictions(cold) == ()
    assert findings(cold) == ()
    assert evidence_line(cold).startswith("8 of 8 turns cold, 0 of 2,240 tokens cached; ")


def test_the_second_run_of_the_same_prompts_is_not_cold(making: Making, cold: Measured) -> None:
    measured = making.with_usage(cold, cached_tokens=2176)
    found = contradictions(measured)[0]
    assert found.kind == "not_cold"
    assert found.reason == "8 of 8 turns were declared cold and had a cached prefix."
    assert found.evidence == ("There 2,176 of 2,240 prompt tokens were cached; 1 % is allowed.")
    assert found.remedy == (
        "Begin every cold prompt with a nonce, before the system prompt; "
        "a seed or a prompt used twice warms the cache."
    )
    assert evidence_line(measured).startswith("0 of 8 turns cold, 2,176 of 2,240 tokens cached; ")


@pytest.mark.parametrize(("cached", "valid"), [(0, True), (22, True), (23, False), (32, False)])
def test_one_percent_of_one_turn_is_the_limit(
    making: Making, cold: Measured, cached: int, valid: bool
) -> None:
    measured = making.with_usage(cold, slice(2, 3), cached_tokens=cached)
    assert kinds(measured) == ([] if valid else ["not_cold"])


def test_a_hit_in_a_prompt_of_unknown_length_is_not_cold(making: Making, cold: Measured) -> None:
    measured = making.with_usage(cold, cached_tokens=4, prompt_tokens=None)
    assert kinds(measured) == ["not_cold"]


def test_counters_without_a_hit_prove_cold_where_usage_is_silent(
    making: Making, cold: Measured
) -> None:
    assert kinds(making.with_usage(cold, cached_tokens=None)) == []


@pytest.mark.parametrize(
    "change",
    [
        {"prefix_hits": 32.0},
        {"prefix_hits": None},
        {"requests_finished": 2.0},
        {"readable": False, "problem": "the metrics page is empty"},
    ],
)
def test_nothing_else_proves_cold(making: Making, cold: Measured, change: dict[str, Any]) -> None:
    measured = making.with_after(making.with_usage(cold, cached_tokens=None), **change)
    assert "cold_unproven" in kinds(measured)


def test_unproven_cold_names_flag_and_counters(making: Making, cold: Measured) -> None:
    measured = making.with_usage(cold, cached_tokens=None)
    found = contradictions(making.with_more(measured, prefix_hits=640))[0]
    assert found.reason == "8 of 8 turns do not say how many tokens were cached."
    assert found.evidence == (
        "Usage has no cached_tokens; the counters say: 640 hits, 20,160 lookups."
    )
    assert found.remedy == (
        "Start vLLM with --enable-prompt-tokens-details, or make the metrics page readable."
    )
