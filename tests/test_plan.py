"""The order of requests: primes before turns, blocks in ABBA order, nothing cached by accident."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmperf.denominator import Prefix
from pytest_llmperf.plan import CANDIDATE, REFERENCE, Step, steps
from pytest_llmperf.planned import PlannedRequest
from pytest_llmperf.workload import Conversations, Prompts

SYSTEM = {"role": "system", "content": "You run a house."}


def _ask(text: str) -> PlannedRequest:
    return PlannedRequest(
        prompt="", messages=(SYSTEM, {"role": "user", "content": text}), max_tokens=16
    )


TALKS = Conversations(
    name="talks",
    histories=tuple(_ask(f"I am guest {who}.") for who in "abc"),
    branches=tuple(f"Light {number}, please." for number in range(10, 16)),
)
QUESTIONS = Prompts(name="questions", items=tuple(_ask(f"Question {n}?") for n in range(4)))


def _plan(workload: Prompts | Conversations, turns: int, **prefixes: Prefix) -> list[Step]:
    return steps(workload, prefixes=prefixes, turns=turns, warmup=2, seed=1)


def _turns(planned: list[Step]) -> list[Step]:
    return [step for step in planned if step.role == "turn"]


class TestOneArm:
    def test_sends_as_many_turns_as_planned_after_its_warm_up(self) -> None:
        planned = _plan(QUESTIONS, 5, candidate="cold")
        assert [step.role for step in planned] == ["warmup"] * 2 + ["turn"] * 5

    def test_that_is_warm_primes_each_block_once_for_its_conversation(self) -> None:
        planned = _plan(TALKS, 4, candidate="warm")
        roles = [step.role for step in planned]
        assert roles == ["warmup"] * 3 + ["prime", "turn", "turn"] * 2

    def test_that_is_warm_says_what_each_turn_comes_after(self) -> None:
        for step in _turns(_plan(TALKS, 8, candidate="warm")):
            assert step.after is not None
            assert step.after.messages[:-1] == step.request.messages[:-1]
            assert step.after.messages != step.request.messages

    def test_that_is_cold_comes_after_nothing(self) -> None:
        assert all(step.after is None for step in _plan(TALKS, 8, candidate="cold"))

    @given(st.integers(1, 60))
    def test_never_sends_one_prompt_twice_when_it_is_cold_or_warm(self, turns: int) -> None:
        for prefix in ("cold", "warm"):
            for workload in (TALKS, QUESTIONS):
                planned = _plan(workload, turns, candidate=prefix)
                sent = Counter(step.request.digest() for step in planned if step.role != "prime")
                measured = [sent[step.request.digest()] for step in _turns(planned)]
                assert measured == [1] * turns

    def test_that_may_be_any_sends_its_prompts_as_they_are(self) -> None:
        planned = _turns(_plan(QUESTIONS, 4, candidate="any"))
        assert {step.request.digest() for step in planned} == {i.digest() for i in QUESTIONS.items}


class TestTwoArms:
    def test_take_turns_in_abba_order_and_flip_it_every_block(self) -> None:
        planned = _turns(_plan(QUESTIONS, 4, candidate="cold", reference="cold"))
        letters = "".join(step.arm[0] for step in planned)
        assert letters == "rccr" + "crrc"

    def test_under_one_declaration_get_the_same_prompts_in_each_block(self) -> None:
        planned = _turns(_plan(QUESTIONS, 6, candidate="cold", reference="cold"))
        for block in range(1, 4):
            mine = [s.request.digest() for s in planned if (s.block, s.arm) == (block, CANDIDATE)]
            other = [s.request.digest() for s in planned if (s.block, s.arm) == (block, REFERENCE)]
            assert len(mine) == 2
            assert sorted(mine) == sorted(other)

    def test_by_prefix_ask_the_same_thing_under_two_nonces(self) -> None:
        planned = _turns(_plan(TALKS, 4, candidate="warm", reference="cold"))
        warm = [step for step in planned if step.arm == CANDIDATE]
        cold = [step for step in planned if step.arm == REFERENCE]
        assert Counter(step.request.prompt for step in warm) == Counter(
            step.request.prompt for step in cold
        )
        assert not {s.request.digest() for s in warm} & {s.request.digest() for s in cold}

    def test_by_prefix_prime_the_candidate_only(self) -> None:
        planned = _plan(TALKS, 4, candidate="warm", reference="cold")
        assert {step.arm for step in planned if step.role == "prime"} == {CANDIDATE}

    @pytest.mark.parametrize("turns", [3, 5])
    def test_fill_their_last_block(self, turns: int) -> None:
        planned = _turns(_plan(QUESTIONS, turns, candidate="cold", reference="cold"))
        assert Counter(step.arm for step in planned) == {CANDIDATE: turns + 1, REFERENCE: turns + 1}


def test_one_seed_plans_the_same_bytes_and_another_seed_others() -> None:
    def digests(seed: int) -> list[str]:
        planned = steps(TALKS, prefixes={CANDIDATE: "cold"}, turns=6, warmup=0, seed=seed)
        return [step.request.digest() for step in planned]

    assert digests(1) == digests(1)
    assert not set(digests(1)) & set(digests(2))
