"""What a load sends: no prompt twice, a conversation for each stream, both arms alike."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_llmperf.denominator import AGGREGATE_THROUGHPUT, BURST, CACHED_TURN, Denominator
from pytest_llmperf.errors import UsageError
from pytest_llmperf.load.plan import LoadWindow, load_windows
from pytest_llmperf.planned import PlannedRequest
from pytest_llmperf.traffic import Traffic

if TYPE_CHECKING:
    from pytest_llmperf.workload import Conversations, Prompts, Workload

COLD = msgspec.structs.replace(AGGREGATE_THROUGHPUT, streams=4)
WARM = msgspec.structs.replace(CACHED_TURN, streams=3)
TRACED = msgspec.structs.replace(COLD, streams=None, arrival="trace")
POISSON = msgspec.structs.replace(COLD, streams=None, arrival="poisson", rate_rps=2.0)


def planned(workload: Workload, *denominators: Denominator, **keywords: int) -> list[LoadWindow]:
    arms = dict(zip(("candidate", "reference"), denominators, strict=False))
    plan = {"turns": 24, "windows": 2, "warmup": 2, "seed": 1} | keywords
    return load_windows(workload, arms, **plan)


def roles(window: LoadWindow) -> Counter[str]:
    return Counter(step.role for step in window.steps)


class TestAWindow:
    def test_of_a_closed_loop_begins_with_a_wave_that_is_left_out(self, questions: Prompts) -> None:
        _, first, second = planned(questions, COLD)
        assert [roles(each) for each in (first, second)] == [{"ramp": 4, "turn": 12}] * 2
        assert (first.starts, first.due) == ((0, 0, 0, 0), None)

    def test_with_a_ramp_leaves_nothing_out(self, questions: Prompts) -> None:
        _, first, _ = planned(questions, msgspec.structs.replace(COLD, ramp_s=3.0))
        assert roles(first) == {"turn": 12}
        assert first.starts == (0, 1_000_000_000, 2_000_000_000, 3_000_000_000)

    def test_of_arrivals_has_a_time_for_each_request(self, questions: Prompts) -> None:
        _, first, second = planned(questions, POISSON)
        assert roles(first) == {"turn": 12}
        assert first.due is not None
        assert len(first.due) == 12
        assert first.due != second.due

    def test_of_recorded_traffic_sends_each_request_when_it_came(self) -> None:
        came_s = tuple(number * 0.5 for number in range(12))
        asked = tuple(
            PlannedRequest(
                prompt="p", messages=({"role": "user", "content": str(n)},), max_tokens=1
            )
            for n in range(12)
        )
        log = Traffic(name="log", items=asked, arrivals_s=came_s)
        _, first, second = planned(log, TRACED)
        assert first.due == second.due == tuple(n * 500_000_000 for n in range(12))
        spoken = [step.request.messages[0]["content"].split()[-1] for step in first.steps]
        assert spoken == [str(n) for n in range(12)]

    def test_of_more_requests_than_were_recorded_is_refused(self, questions: Prompts) -> None:
        with pytest.raises(UsageError) as caught:
            planned(questions, TRACED)
        assert str(caught.value) == (
            "arrival='trace' has no time for each of its requests.\n"
            "2 requests are to be sent in one window, and the workload has none.\n"
            "Give Traffic whose file has timestamps, and plan no more turns a window than it has."
        )

    def test_of_a_burst_is_due_at_once(self, questions: Prompts) -> None:
        burst = msgspec.structs.replace(BURST, streams=24)
        _, only = planned(questions, burst, windows=1)
        assert only.due == (0,) * 24

    def test_of_warmth_primes_a_conversation_for_each_stream(self, talks: Conversations) -> None:
        _, first, second = planned(talks, WARM)
        # Three branches are measured; the fourth turn of a conversation lives a second time.
        assert len(first.primes) == 6
        primed = {step.request.digest() for step in first.primes}
        assert {step.after.digest() for step in first.steps if step.after} == primed
        assert primed.isdisjoint(step.request.digest() for step in second.primes)

    def test_of_cold_turns_primes_nothing(self, talks: Conversations) -> None:
        _, first, _ = planned(talks, msgspec.structs.replace(WARM, prefix="cold"))
        assert first.primes == ()

    def test_of_warm_up_is_as_wide_as_the_load(self, questions: Prompts) -> None:
        assert roles(planned(questions, COLD)[0]) == {"warmup": 4}
        assert roles(planned(questions, COLD, warmup=7)[0]) == {"warmup": 7}
        assert len(planned(questions, COLD, warmup=0)) == 2


class TestAPlan:
    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
    @given(streams=st.integers(1, 9), windows=st.integers(1, 4), prefix=st.sampled_from("cw"))
    def test_sends_no_prompt_twice(
        self, talks: Conversations, streams: int, windows: int, prefix: str
    ) -> None:
        of = msgspec.structs.replace(
            WARM, streams=streams, prefix="cold" if prefix == "c" else "warm"
        )
        plan = planned(talks, of, windows=windows, turns=windows * 2 * streams)
        sent = [step.request.digest() for window in plan for step in window.steps]
        assert len(sent) == len(set(sent))

    def test_gives_both_arms_the_same_prompts_in_alternating_order(
        self, questions: Prompts
    ) -> None:
        windows = planned(questions, COLD, COLD, warmup=0)
        assert [(each.arm, each.block) for each in windows] == [
            ("candidate", 0),
            ("reference", 0),
            ("reference", 1),
            ("candidate", 1),
        ]
        sent = [[step.request for step in each.steps] for each in windows]
        assert sent[0] == sent[1]
        assert sent[2] == sent[3]

    def test_is_the_same_for_the_same_seed_and_another_for_another(
        self, questions: Prompts
    ) -> None:
        assert planned(questions, POISSON) == planned(questions, POISSON)
        assert planned(questions, POISSON)[1].due != planned(questions, POISSON, seed=2)[1].due
