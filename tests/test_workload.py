"""Workloads: what is sent stays the same, cold prompts are new, warm ones share a prefix."""

from __future__ import annotations

import itertools
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmperf.errors import UsageError
from pytest_llmperf.planned import PlannedRequest
from pytest_llmperf.workload import Conversations, Prompts, difference, nonce, unchanging

LIVE = "[request 000000000001]"
FRESH = "[request 000000000002]"


def said(role: str, content: str | list[dict[str, str]]) -> dict[str, Any]:
    return {"role": role, "content": content}


def chat(*messages: dict[str, Any], content_class: str | None = "prose") -> PlannedRequest:
    return PlannedRequest(
        prompt="given", messages=messages, max_tokens=32, content_class=content_class
    )


def history(who: str = "Ada") -> PlannedRequest:
    return chat(said("system", "You are Anton."), said("user", who), said("assistant", "Hello."))


def talks(*branches: str, histories: int = 2) -> Conversations:
    people = ("Ada", "Boris", "Carla")[:histories]
    return Conversations(
        name="talks",
        histories=tuple(history(who) for who in people),
        branches=branches or ("lamp on", "fans on", "oven on"),
    )


def prompts(*texts: str) -> Prompts:
    items = (chat(said("system", "You are Anton."), said("user", text)) for text in texts)
    return Prompts(name="lamps", items=tuple(items))


class TestNonce:
    @given(st.integers(), st.sampled_from(["cold", "live"]), st.integers(min_value=0))
    def test_it_is_a_line_of_one_length_that_its_seed_can_make_again(
        self, seed: int, kind: str, index: int
    ) -> None:
        line = nonce(seed, kind, index)
        assert re.fullmatch(r"\[request \d{12}\]", line)
        assert line == nonce(seed, kind, index)

    def test_no_two_requests_and_no_two_runs_share_one(self) -> None:
        runs = itertools.product((1, 2), ("cold", "live"), range(500))
        assert len({nonce(*run) for run in runs}) == 2 * 2 * 500


class TestPrompts:
    def test_a_cold_request_has_its_nonce_before_the_system_prompt(self) -> None:
        sent = prompts("Lamp on.").cold(0, FRESH)
        assert sent.messages == (
            said("system", f"{FRESH}\nYou are Anton."),
            said("user", "Lamp on."),
        )

    def test_a_chat_without_a_system_prompt_has_it_before_its_first_message(self) -> None:
        workload = Prompts(name="lamps", items=(chat(said("user", "Lamp on.")),))
        assert workload.cold(0, FRESH).messages == (said("user", f"{FRESH}\nLamp on."),)

    def test_a_message_of_parts_has_it_as_its_first_part(self) -> None:
        parts = [{"type": "text", "text": "Lamp on."}]
        workload = Prompts(name="lamps", items=(chat(said("user", parts)),))
        headed = [{"type": "text", "text": f"{FRESH}\n"}, *parts]
        assert workload.cold(0, FRESH).messages == (said("user", headed),)

    def test_a_completion_has_it_before_its_text(self) -> None:
        item = PlannedRequest(prompt="given", endpoint="completions", text="Once", max_tokens=8)
        assert Prompts(name="tales", items=(item,)).cold(0, FRESH).text == f"{FRESH}\nOnce"

    def test_requests_are_named_for_their_place_and_start_again_when_used_up(self) -> None:
        workload = prompts("Lamp on.", "Fan on.")
        assert [workload.plain(i).prompt for i in range(3)] == ["lamps/0", "lamps/1", "lamps/0"]
        assert workload.cold(3, FRESH).prompt == "lamps/1"

    def test_what_is_planned_is_otherwise_sent_as_it_is(self) -> None:
        item = PlannedRequest(
            prompt="given",
            messages=(said("user", "Lamp on."),),
            tools=({"type": "function"},),
            max_tokens=7,
            temperature=0.5,
            seed=3,
            content_class="tool_call",
            extra={"ignore_eos": True},
        )
        plain = Prompts(name="lamps", items=(item,)).plain(0)
        assert plain.body("m", token_ids=False) == item.body("m", token_ids=False)


class TestConversations:
    def test_a_turn_and_what_primed_it_differ_only_in_the_last_message(self) -> None:
        workload = talks()
        prime, turn = workload.prime(0, LIVE), workload.turn(0, 1, LIVE)
        assert prime.messages[:-1] == turn.messages[:-1]
        assert prime.messages[-1] == said("user", "lamp on")
        assert turn.messages[-1] == said("user", "fans on")
        assert turn.messages[0]["content"].startswith(LIVE)
        assert (prime.max_tokens, turn.max_tokens) == (4, 32)

    def test_a_cold_turn_is_the_same_turn_under_another_nonce_of_equal_length(self) -> None:
        workload = talks()
        warm, cold = workload.turn(1, 2, LIVE), workload.turn(1, 2, FRESH)
        assert warm.prompt == cold.prompt == "talks/1/2"
        assert len(str(warm.messages)) == len(str(cold.messages))
        assert warm.messages[1:] == cold.messages[1:]


class TestDigest:
    def test_the_same_workload_built_twice_has_one_digest(self) -> None:
        assert talks().digest == talks().digest
        assert prompts("Lamp on.").digest == prompts("Lamp on.").digest

    def test_it_changes_with_anything_that_is_sent(self) -> None:
        variants = [
            talks().digest,
            talks("lamp on", "fans on").digest,
            talks(histories=1).digest,
            prompts("Lamp on.").digest,
            prompts("Lamp off.").digest,
        ]
        assert len(set(variants)) == len(variants)

    def test_it_does_not_change_with_a_name(self) -> None:
        renamed = Prompts(name="renamed", items=prompts("Lamp on.").items)
        assert renamed.digest == prompts("Lamp on.").digest


class TestUnchanging:
    def test_a_workload_that_is_built_the_same_twice_is_handed_on(self) -> None:
        assert unchanging(lambda: prompts("Lamp on.")) == prompts("Lamp on.")

    def test_a_prompt_that_is_never_the_same_twice_is_refused_with_the_place(self) -> None:
        drift = itertools.count(17)

        def dated() -> Prompts:
            return prompts(f"It is {next(drift)} o'clock. Lamp on.")

        with pytest.raises(UsageError) as refused:
            unchanging(dated)
        assert str(refused.value) == (
            "The workload 'lamps' is not the same when it is built twice.\n"
            "First difference: "
            """'em"},{"content":"It is 17 o\\'clock. Lamp on.","ro' against """
            """'em"},{"content":"It is 18 o\\'clock. Lamp on.","ro'.\n"""
            "Take dates, random ids and unordered sets out of its prompts, "
            "or fix them to one value."
        )


class TestDifference:
    def test_equal_requests_have_none_whatever_they_are_called(self) -> None:
        workload = prompts("Lamp on.", "Lamp on.")
        assert difference(workload.plain(0), workload.plain(1)) is None

    def test_the_first_one_is_shown_from_both_sides(self) -> None:
        workload = prompts("Lamp on.", "Lamp off.")
        shown = difference(workload.plain(0), workload.plain(1))
        assert shown is not None
        assert 'Lamp on."' in shown
        assert 'Lamp off."' in shown


class TestRefused:
    def test_a_workload_without_requests(self) -> None:
        with pytest.raises(UsageError) as refused:
            Prompts(name="lamps", items=())
        assert str(refused.value) == (
            "The workload 'lamps' holds no request.\n"
            "Its sequence of requests is empty.\n"
            "Give it at least one request."
        )

    def test_conversations_without_a_conversation(self) -> None:
        with pytest.raises(UsageError) as refused:
            talks(histories=0)
        assert str(refused.value) == (
            "The workload 'talks' holds no conversation.\n"
            "Its sequence of conversations is empty.\n"
            "Give it at least one conversation."
        )

    def test_one_branch_since_it_only_primes(self) -> None:
        with pytest.raises(UsageError) as refused:
            talks("lamp on")
        assert str(refused.value) == (
            "The workload 'talks' has 1 branches.\n"
            "The first branch primes the cache and is never measured.\n"
            "Give it at least two last messages."
        )

    def test_branches_of_different_length(self) -> None:
        with pytest.raises(UsageError) as refused:
            talks("lamp on", "fan on")
        assert str(refused.value) == (
            "The workload 'talks' has branches of different length.\n"
            "'lamp on' has 2 words and 7 characters, 'fan on' has 2 words and 6 characters.\n"
            "Word the last messages so that they differ in words, not in length."
        )

    def test_a_branch_that_is_said_twice(self) -> None:
        with pytest.raises(UsageError) as refused:
            talks("lamp on", "fans on", "fans on")
        assert str(refused.value) == (
            "The workload 'talks' says the same branch twice.\n"
            "'fans on' stands 2 times; its second turn would be cached to its last word, "
            "which is not what a next turn is.\n"
            "Word each last message differently."
        )

    def test_content_classes_that_are_mixed(self) -> None:
        with pytest.raises(UsageError) as refused:
            Prompts(
                name="all",
                items=(
                    chat(said("user", "a"), content_class="json"),
                    chat(said("user", "b"), content_class=None),
                ),
            )
        assert str(refused.value) == (
            "The workload 'all' mixes 2 content classes.\n"
            "They are 'json', None; how well a drafter guesses depends on the class.\n"
            "Make one workload for each class."
        )
