from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmperf.miniature.household import (
    REQUESTS,
    RESIDENTS,
    ROOMS,
    ROUTER_SYSTEM_PROMPT,
    TOOLS,
    ToolRequest,
    code_request,
    json_request,
    prose_request,
    request_nonce,
    routine_request,
    tool_request,
)

seeds = st.integers(0, 2**32)
PYTHON_TYPES = {"string": str, "integer": int, "array": list, "object": dict}


def schema_of(tool_name: str) -> dict[str, Any]:
    (schema,) = (t["function"]["parameters"] for t in TOOLS if t["function"]["name"] == tool_name)
    return dict(schema)


def leaves(value: object) -> Iterator[object]:
    if isinstance(value, dict):
        for inner in value.values():
            yield from leaves(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from leaves(inner)
    else:
        yield value


class TestTheTools:
    def test_are_a_dozen_with_names_of_their_own(self) -> None:
        assert len({tool["function"]["name"] for tool in TOOLS}) == len(TOOLS) == 12

    def test_have_the_shape_of_a_chat_request(self) -> None:
        for tool in TOOLS:
            assert tool["type"] == "function"
            assert set(tool["function"]) == {"name", "description", "parameters"}
            assert tool["function"]["parameters"]["type"] == "object"

    def test_describe_every_parameter_and_require_them_all(self) -> None:
        for tool in TOOLS:
            parameters = tool["function"]["parameters"]
            assert parameters["required"] == list(parameters["properties"])
            assert all(p["description"] for p in parameters["properties"].values())

    def test_travel_as_json(self) -> None:
        assert json.loads(json.dumps(TOOLS)) == TOOLS


class TestAToolRequest:
    @given(seeds)
    def test_fills_exactly_the_arguments_of_its_tool(self, seed: int) -> None:
        request = tool_request(Random(seed))
        properties = schema_of(request.name)["properties"]
        assert list(request.arguments) == list(properties)
        for name, value in request.arguments.items():
            assert isinstance(value, PYTHON_TYPES[properties[name]["type"]])
            assert value in properties[name].get("enum", [value])

    @given(seeds)
    def test_says_every_value_that_its_call_needs(self, seed: int) -> None:
        request = tool_request(Random(seed))
        for value in leaves(request.arguments):
            assert re.search(rf"\b{re.escape(str(value))}\b", request.text), value

    @given(seeds)
    def test_is_the_same_for_the_same_seed(self, seed: int) -> None:
        assert tool_request(Random(seed)) == tool_request(Random(seed))

    def test_reaches_every_tool(self) -> None:
        r = Random(0)
        reached = {tool_request(r).name for _ in range(400)}
        assert reached == {tool["function"]["name"] for tool in TOOLS}

    def test_is_answered_in_one_sentence(self) -> None:
        r = Random(0)
        for _ in range(100):
            assert re.fullmatch(r"[A-Z][^.]*\.", tool_request(r).answer)

    @pytest.mark.parametrize("steps", [1, 3, 4, 6])
    def test_for_a_routine_has_as_many_steps_as_wanted(self, steps: int) -> None:
        assert len(routine_request(Random(5), steps).arguments["steps"]) == steps


class TestARequestWithoutATool:
    @given(seeds)
    def test_for_json_is_answered_with_the_records_that_were_said(self, seed: int) -> None:
        request = json_request(Random(seed))
        (rows,) = json.loads(request.answer).values()
        assert 3 <= len(rows) <= 5
        for value in leaves(rows):
            assert isinstance(value, bool) or str(value) in request.text

    @given(seeds)
    def test_for_code_is_answered_with_one_block_of_valid_python(self, seed: int) -> None:
        answer = code_request(Random(seed)).answer
        block = re.fullmatch(r"```python\n(.*)\n```", answer, re.DOTALL)
        assert block
        assert len(ast.parse(block[1]).body) == 1

    @given(seeds)
    def test_for_prose_is_answered_with_sentences(self, seed: int) -> None:
        sentences = re.findall(r"[A-Z][^.!?]*[.!?]", prose_request(Random(seed)).answer)
        assert 5 <= len(sentences) <= 9

    def test_for_prose_never_repeats_itself(self) -> None:
        r = Random(0)
        assert len({prose_request(r).answer for _ in range(200)}) == 200


def test_every_content_class_has_a_generator_that_draws_its_own_kind() -> None:
    assert list(REQUESTS) == ["tool", "json", "code", "prose"]
    for kind, draw in REQUESTS.items():
        assert isinstance(draw(Random(1)), ToolRequest) == (kind == "tool")


@given(seeds)
def test_a_nonce_is_twelve_decimal_digits_in_brackets(seed: int) -> None:
    assert re.fullmatch(r"\[request \d{12}\]", request_nonce(Random(seed)))


def test_the_router_prompt_is_a_few_paragraphs_without_trailing_space() -> None:
    assert len(ROUTER_SYSTEM_PROMPT.split("\n\n")) == 4
    assert 250 < len(ROUTER_SYSTEM_PROMPT.split()) < 350
    assert not re.search(r"[ \t]\n|\s$", ROUTER_SYSTEM_PROMPT)


def test_rooms_and_residents_are_single_words_of_which_no_two_are_equal() -> None:
    for names in (ROOMS, RESIDENTS):
        assert len(set(names)) == len(names)
        assert all(name.isalpha() for name in names)
