from __future__ import annotations

import re
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmperf.miniature.corpus import Chat, exchange, middle_chat, router_chat, short_chat
from pytest_llmperf.miniature.household import (
    ROUTER_SYSTEM_PROMPT,
    TOOLS,
    json_request,
    tool_request,
)

Draw = Callable[[Random], Chat]
chats = pytest.mark.parametrize("draw", [short_chat, middle_chat, router_chat])


class TestAConversation:
    @chats
    def test_is_the_same_for_the_same_seed(self, draw: Draw) -> None:
        assert draw(Random(7)) == draw(Random(7))
        assert draw(Random(7)) != draw(Random(8))

    @given(st.sampled_from([short_chat, middle_chat, router_chat]), st.integers(0, 2**32))
    def test_weighs_every_turn_of_the_assistant(self, draw: Draw, seed: int) -> None:
        chat = draw(Random(seed))
        assert len(chat.weights) == chat.text().count("<|turn>model\n")
        assert len(chat.weights) == sum(m["role"] == "user" for m in chat.messages)

    def test_calls_tools_more_often_than_it_writes_any_other_kind(self) -> None:
        r = Random(1)
        texts = [short_chat(r).text() for _ in range(400)]
        calls = sum(text.count("<|tool_call>") for text in texts)
        code = sum(text.count("```python") for text in texts)
        assert calls > 1.5 * code > 0


class TestTheRoutersConversation:
    def test_offers_all_tools_after_the_whole_prompt(self) -> None:
        chat = router_chat(Random(1))
        assert list(chat.tools) == TOOLS
        assert chat.messages[0]["content"].endswith(ROUTER_SYSTEM_PROMPT)

    def test_begins_with_a_nonce_more_often_than_not(self) -> None:
        heads = [router_chat(Random(seed)).messages[0]["content"] for seed in range(100)]
        nonces = [head for head in heads if re.match(r"\[request \d{12}\]\nYou are Anton", head)]
        assert 40 < len(nonces) < 80

    def test_has_as_many_requests_as_wanted(self) -> None:
        chat = router_chat(Random(1), requests=9)
        assert sum(message["role"] == "user" for message in chat.messages) == 9


class TestAnExchange:
    def test_around_a_tool_is_request_call_response_and_answer(self) -> None:
        request = tool_request(Random(3))
        user, call, response, answer = exchange(request, "c7")
        assert user == {"role": "user", "content": request.text}
        assert call["tool_calls"][0]["function"]["arguments"] == request.arguments
        assert response["tool_call_id"] == call["tool_calls"][0]["id"] == "c7"
        assert answer == {"role": "assistant", "content": request.answer}

    def test_without_a_tool_is_request_and_answer(self) -> None:
        assert [m["role"] for m in exchange(json_request(Random(3)))] == ["user", "assistant"]
