from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmperf.miniature.corpus import Chat, middle_chat, router_chat, short_chat
from pytest_llmperf.miniature.transcript import CHAT_TEMPLATE, SPECIAL_TOKENS, render

USER = {"role": "user", "content": "Light off."}
TOOL = {
    "type": "function",
    "function": {
        "name": "set_light",
        "description": "Set a light.",
        "parameters": {
            "type": "object",
            "properties": {
                "room": {"type": "string", "description": "Room.", "enum": ["hall", "attic"]},
                "levels": {"type": "array", "items": {"type": "integer"}},
            },
            "required": ["room"],
        },
    },
}


def calling(call_id: str = "c1", **arguments: object) -> dict[str, Any]:
    function = {"name": "set_light", "arguments": arguments}
    call = {"id": call_id, "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


class TestATranscript:
    def test_of_plain_turns_is_a_line_of_role_and_the_words(self) -> None:
        messages = [{"role": "system", "content": "Be brief."}, USER]
        assert render(messages, add_generation_prompt=True) == (
            "<bos><|turn>system\nBe brief.<turn|>\n<|turn>user\nLight off.<turn|>\n<|turn>model\n"
        )

    def test_declares_tools_in_the_system_turn_even_without_a_system_prompt(self) -> None:
        assert render([USER], [TOOL]) == (
            "<bos><|turn>system\n"
            '<|tool>declaration:set_light{description:<|"|>Set a light.<|"|>,parameters:'
            '{properties:{room:{description:<|"|>Room.<|"|>,'
            'enum:[<|"|>hall<|"|>,<|"|>attic<|"|>],type:<|"|>STRING<|"|>},'
            'levels:{items:{type:<|"|>INTEGER<|"|>},type:<|"|>ARRAY<|"|>}},'
            'type:<|"|>OBJECT<|"|>}}<tool|><turn|>\n'
            "<|turn>user\nLight off.<turn|>\n"
        )

    def test_goes_on_in_the_same_turn_after_the_tool_has_answered(self) -> None:
        response = {"role": "tool", "tool_call_id": "c1", "content": "done"}
        answer = {"role": "assistant", "content": "It is off."}
        assert render([USER, calling(room="hall"), response, answer]) == (
            "<bos><|turn>user\nLight off.<turn|>\n<|turn>model\n"
            '<|tool_call>call:set_light{room:<|"|>hall<|"|>}<tool_call|>'
            '<|tool_response>response:set_light{value:<|"|>done<|"|>}<tool_response|>'
            "It is off.<turn|>\n"
        )

    def test_closes_a_call_that_was_never_answered_when_the_user_speaks(self) -> None:
        assert render([USER, calling(), USER]).endswith(
            "call:set_light{}<tool_call|><turn|>\n<|turn>user\nLight off.<turn|>\n"
        )

    def test_asks_for_no_new_turn_while_the_model_still_has_the_word(self) -> None:
        response = {"role": "tool", "tool_call_id": "c1", "content": "done"}
        messages = [USER, calling(), response]
        assert render(messages, add_generation_prompt=True) == render(messages)

    @pytest.mark.parametrize(
        ("value", "written"),
        [
            (7, "7"),
            (1.5, "1.5"),
            (True, "true"),
            (False, "false"),
            (None, "null"),
            ("a b", '<|"|>a b<|"|>'),
            ([1, "x"], '[1,<|"|>x<|"|>]'),
            ({"k": {"n": 1}}, "{k:{n:1}}"),
            ([], "[]"),
        ],
    )
    def test_writes_each_kind_of_argument_as_gemma_does(self, value: object, written: str) -> None:
        assert f"call:set_light{{x:{written}}}<tool_call|>" in render([USER, calling(x=value)])

    @pytest.mark.parametrize(
        ("response", "name"),
        [
            ({"tool_call_id": "c1"}, "set_light"),
            ({"tool_call_id": "unknown"}, "tool"),
            ({"name": "own"}, "own"),
            ({}, "tool"),
        ],
    )
    def test_names_the_tool_that_answers_by_its_call(
        self, response: dict[str, str], name: str
    ) -> None:
        message = {"role": "tool", "content": "done"} | response
        assert f"<|tool_response>response:{name}{{" in render([USER, calling(), message])

    def test_names_the_call_before_an_answer_when_an_identifier_is_used_again(self) -> None:
        later = calling()
        later["tool_calls"][0]["function"]["name"] = "other"
        response = {"role": "tool", "tool_call_id": "c1", "content": "done"}
        text = render([USER, calling(), response, USER, later, response])
        assert "response:set_light{" in text
        assert "response:other{" in text

    @given(st.sampled_from([short_chat, middle_chat, router_chat]), st.integers(0, 2**32))
    def test_of_a_shorter_conversation_begins_that_of_a_longer_one(
        self, draw: Callable[[Random], Chat], seed: int
    ) -> None:
        chat = draw(Random(seed))
        texts = [render(chat.messages[:k], chat.tools) for k in range(1, len(chat.messages) + 1)]
        for shorter, longer in pairwise(texts):
            assert longer.startswith(shorter)


def test_the_template_lies_beside_its_twin() -> None:
    assert CHAT_TEMPLATE.is_file()


def test_each_control_token_stands_for_itself_once() -> None:
    assert len(set(SPECIAL_TOKENS)) == len(SPECIAL_TOKENS)
