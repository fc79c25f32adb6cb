"""The search for the smallest shape that breaks a budget: what it finds, and by how few probes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_llmperf.errors import UsageError
from pytest_llmperf.shapes import Shape, Space, conversations, prompt_lengths, tool_schemas
from pytest_llmperf.shapes.search import ENOUGH, Search
from pytest_llmperf.verdict import Word

SPACE = Space(turns=6, tools=8, words=1024, step=64)


@pytest.mark.parametrize(
    "bounds", [{"turns": -1}, {"tools": -1}, {"words": 0}, {"step": 0}, {"words": 1.5}]
)
def test_a_space_without_a_conversation_is_refused(bounds: dict[str, Any]) -> None:
    ((name, given_),) = bounds.items()
    with pytest.raises(UsageError, match=rf"Space\({name}={given_}\) holds no conversation"):
        Space(**bounds)


def over(limit: int) -> dict[str, object]:
    """A probe whose conversations are slow in proportion to their words, and what it was asked."""
    asked: list[Shape] = []

    def probe(shape: Shape) -> Word:
        asked.append(shape)
        cost = shape.words + 30 * shape.turns + 40 * shape.tools
        return "REGRESS" if cost > limit else "PASS"

    return {"probe": probe, "asked": asked}


def searched(limit: int) -> tuple[Shape | None, list[Shape]]:
    made = over(limit)
    found = Search(SPACE, made["probe"]).smallest()  # type: ignore[arg-type]
    return found, made["asked"]  # type: ignore[return-value]


@pytest.mark.parametrize("limit", [100, 300, 500, 700, 1000])
def test_the_smallest_length_that_breaks_it_is_found_to_the_step(limit: int) -> None:
    found, asked = searched(limit)
    assert found is not None
    assert (found.turns, found.tools) == (0, 0)
    assert limit < found.words <= limit + SPACE.step
    assert len(asked) <= 30


def test_what_only_turns_can_break_is_found_without_words() -> None:
    def probe(shape: Shape) -> Word:
        return "REGRESS" if shape.turns >= 4 else "PASS"

    assert Search(SPACE, probe).smallest() == Shape(turns=4, tools=0, words=64)


def test_a_fair_budget_takes_the_largest_and_a_few_more() -> None:
    found, asked = searched(10_000)
    assert found is None
    assert asked[0] == SPACE.largest
    assert len(asked) == 1 + ENOUGH


def test_no_shape_is_asked_for_twice() -> None:
    _, asked = searched(500)
    assert len(asked) == len(set(asked))


def test_the_same_search_goes_the_same_way() -> None:
    assert searched(500) == searched(500)


def test_an_open_verdict_is_no_counterexample() -> None:
    search = Search(SPACE, lambda _: "INCONCLUSIVE")
    assert search.smallest() is None
    assert set(search.words.values()) == {"INCONCLUSIVE"}


def test_a_search_that_is_cut_short_says_so_and_keeps_what_it_found() -> None:
    made = over(500)
    left = iter(range(5))

    def probe(shape: Shape) -> Word | None:
        return made["probe"](shape) if next(left, None) is not None else None  # type: ignore[operator]

    search = Search(SPACE, probe)
    found = search.smallest()
    assert search.is_over
    assert found in search.broken
    assert len(search.words) == 5


@given(limit=st.integers(64, 1500))
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.nested_given])
def test_whatever_is_found_breaks_the_budget_and_was_measured(limit: int) -> None:
    found, asked = searched(limit)
    if found is None:
        assert SPACE.largest.words + 30 * 6 + 40 * 8 <= limit
    else:
        assert found in asked
        assert found.words + 30 * found.turns + 40 * found.tools > limit


@given(shape=conversations(SPACE))
def test_a_shape_is_what_it_says(shape: Shape) -> None:
    request = shape.request()
    assert len(request.tools) == shape.tools
    assert len(request.messages) == 2 + 2 * shape.turns
    assert len(request.messages[-1]["content"].split()) == shape.words
    assert shape.is_within(SPACE.largest)
    assert shape.request().digest() == request.digest()


@given(length=prompt_lengths(500, step=50))
def test_lengths_are_multiples_of_the_step(length: int) -> None:
    assert length % 50 == 0
    assert 50 <= length <= 500


@given(tool=tool_schemas())
def test_a_tool_schema_names_its_parameters(tool: dict[str, dict[str, dict[str, object]]]) -> None:
    parameters = tool["function"]["parameters"]
    assert set(parameters["required"]) <= set(parameters["properties"])  # type: ignore[call-overload]
