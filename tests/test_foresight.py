"""What a run cannot decide is foreseen by what will be judged: turns, windows, or nothing."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_llmperf.asserted import Claims
from pytest_llmperf.declaration import Declaration, declare
from pytest_llmperf.foresight import blindness, doubts, mistake
from pytest_llmperf.run import Levels

LEVELS = Levels(alpha=0.01, beta=0.05)
P95 = Claims(latencies=(0.95,))


def declared(name: str, **keywords: Any) -> Declaration:  # noqa: ANN401 - any keyword of a marker
    found, problems = declare([(name, (), keywords)])
    assert problems == []
    assert found is not None
    return found


def told(found: Declaration, claims: Claims = P95, boots: int = 1) -> list[str]:
    return list(doubts(found, claims, LEVELS, 1.0, boots))


@pytest.mark.parametrize(
    ("keywords", "why"),
    [
        ({}, None),
        ({"tolerance": 0.5, "detect": 0.1}, "detect is 0.1 and tolerance 0.5"),
        ({"tolerance": 0.1}, "detect is 0.1 and tolerance 0.1"),
        ({"detect": 0.01}, "detect is 0.01 and tolerance 0.02"),
    ],
)
def test_a_gate_is_not_to_see_what_it_tolerates(
    keywords: dict[str, float], why: str | None
) -> None:
    assert blindness(declared("cached_turn", **keywords), LEVELS) == why


def test_turns_that_follow_one_another_are_counted_one_by_one() -> None:
    assert told(declared("cached_turn", turns=30)) == [
        "p95 of 30 turns can never be PASS: that takes 59 turns"
    ]
    assert told(declared("cached_turn", turns=59)) == []


def test_of_a_load_the_windows_are_counted_not_the_turns() -> None:
    assert told(declared("cached_turn", streams=2, turns=65, windows=5)) == []
    assert told(declared("cached_turn", streams=2, turns=40, windows=2)) == [
        "p95 over 2 windows of load is not judged on one boot: that takes 3 windows"
    ]


def test_a_window_too_small_for_its_quantile_is_told() -> None:
    assert told(declared("cached_turn", streams=2, turns=60, windows=5)) == [
        "p95 of a window of 12 turns cannot be estimated: that takes 13 a window"
    ]
    assert told(declared("cached_turn", streams=2, turns=60, windows=5), boots=3) == []


def test_a_throughput_of_all_streams_is_one_number_a_window() -> None:
    throughput = Claims(is_throughput=True)
    assert told(declared("aggregate_throughput", streams=2, turns=20), throughput) == []
    few = declared("aggregate_throughput", streams=2, turns=8, windows=2)
    assert told(few, throughput) == [
        "p50 over 2 windows of load is not judged on one boot: that takes 3 windows"
    ]
    assert mistake(few, throughput, LEVELS, 1) is None


@pytest.mark.parametrize("name", ["burst", "ladder", "failover"])
def test_what_is_judged_otherwise_is_not_doubted(name: str) -> None:
    every = Claims(latencies=(0.5, 0.95), is_throughput=True)
    assert told(declared(name), every) == []
    assert mistake(declared(name), every, LEVELS, 1) is None


def test_a_few_turns_of_which_all_are_slow_are_a_mistake() -> None:
    median = Claims(latencies=(0.5,))
    found = mistake(declared("cached_turn", turns=5), median, LEVELS, 1)
    assert found is not None
    assert found.startswith("p50: A quantile test over 5 turns can never say REGRESS.")
    assert mistake(declared("cached_turn", turns=7), median, LEVELS, 1) is None
    assert mistake(declared("cached_turn", turns=5), median, LEVELS, 3) is None
