"""What a planned request sends, what it refuses, and when two of them are the same."""

# ruff: noqa: ANN401 - chunks are JSON, and builders pass on whatever fields they are given

from __future__ import annotations

from typing import Any

import pytest

from pytest_llmperf.errors import UsageError
from pytest_llmperf.planned import PlannedRequest

ASKED = ({"role": "user", "content": "hello"},)


def chat(**fields: Any) -> PlannedRequest:
    return PlannedRequest(**{"prompt": "p", "messages": ASKED, "max_tokens": 8, **fields})


def completion(**fields: Any) -> PlannedRequest:
    given: dict[str, Any] = {"endpoint": "completions", "text": "hello"}
    return PlannedRequest(**{"prompt": "p", "max_tokens": 8, **given, **fields})


class TestBody:
    def test_a_chat_streams_with_running_usage_and_token_ids(self) -> None:
        assert chat().body("gemma", token_ids=True) == {
            "model": "gemma",
            "messages": [{"role": "user", "content": "hello"}],
            "max_tokens": 8,
            "temperature": 0.0,
            "stream": True,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
            "return_token_ids": True,
        }

    def test_token_ids_are_not_mentioned_unless_asked_for(self) -> None:
        assert "return_token_ids" not in chat().body("gemma", token_ids=False)

    def test_tools_seed_and_further_fields_are_sent(self) -> None:
        tool = {"type": "function", "function": {"name": "f"}}
        body = chat(tools=(tool,), seed=7, extra={"ignore_eos": True}).body("g", token_ids=False)
        assert (body["tools"], body["seed"], body["ignore_eos"]) == ([tool], 7, True)

    def test_a_completion_sends_its_text(self) -> None:
        body = completion().body("gemma", token_ids=False)
        assert body["prompt"] == "hello"
        assert not {"messages", "tools"} & body.keys()

    def test_each_endpoint_has_its_path(self) -> None:
        assert chat().path == "/v1/chat/completions"
        assert completion().path == "/v1/completions"

    def test_the_content_class_is_ours_and_is_not_sent(self) -> None:
        assert "content_class" not in chat(content_class="json").body("g", token_ids=True)


class TestDigest:
    def test_the_same_request_has_the_same_digest_however_it_was_written_down(self) -> None:
        one = chat(messages=({"role": "user", "content": "hi"},), extra={"a": 1, "b": 2})
        other = chat(messages=({"content": "hi", "role": "user"},), extra={"b": 2, "a": 1})
        assert one.digest() == other.digest()
        assert len(one.digest()) == 64

    def test_its_name_is_no_part_of_the_digest(self) -> None:
        assert chat(prompt="p").digest() == chat(prompt="q").digest()

    @pytest.mark.parametrize(
        "change",
        [
            {"max_tokens": 9},
            {"temperature": 1.0},
            {"seed": 1},
            {"messages": ({"role": "user", "content": "hello "},)},
            {"tools": ({"type": "function"},)},
            {"extra": {"ignore_eos": True}},
        ],
    )
    def test_whatever_is_sent_changes_the_digest(self, change: dict[str, Any]) -> None:
        assert chat(**change).digest() != chat().digest()


class TestRefusals:
    @pytest.mark.parametrize(
        ("make", "evidence"),
        [
            (
                lambda: chat(extra={"model": "x", "stream": False}),
                "extra repeats fields that are set elsewhere: model, stream.",
            ),
            (lambda: chat(max_tokens=0), "max_tokens is 0; it must be at least 1."),
            (lambda: chat(messages=()), "A chat needs at least one message; it has none."),
            (lambda: chat(text="hello"), "A chat has messages, not text."),
            (lambda: completion(text=None), "A completion needs text; it is None."),
            (lambda: completion(messages=ASKED), "A completion has no messages and no tools."),
        ],
    )
    def test_what_cannot_be_sent_is_refused_when_it_is_planned(
        self, make: Any, evidence: str
    ) -> None:
        with pytest.raises(UsageError) as caught:
            make()
        assert str(caught.value) == (
            "The planned request 'p' cannot be sent.\n"
            f"{evidence}\n"
            "Correct the workload that plans it."
        )
