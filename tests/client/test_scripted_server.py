"""The scripted server has a healthy engine's manners, and each fault breaks exactly one of them."""

# ruff: noqa: ANN401 - chunks are JSON, and builders pass on whatever fields they are given

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from pytest_llmperf import record
from pytest_llmperf.client import Client
from pytest_llmperf.planned import PlannedRequest
from pytest_llmperf.testing import Behaviour, Faults, ScriptedServer

Make = Callable[..., "Pair"]
LONG = " ".join(f"rule{n}" for n in range(100))


class Pair:
    """A server and its client."""

    def __init__(self, server: ScriptedServer, client: Client) -> None:
        self.server = server
        self.client = client

    def ask(self, question: str = "hello", *, system: str = LONG, **fields: Any) -> record.Request:
        messages = (
            {"role": "system", "content": system},
            {"role": "user", "content": question},
        )
        planned = PlannedRequest(
            **{"prompt": "p", "messages": messages, "max_tokens": 12, **fields}
        )
        return self.client.send(planned, request_id="r")

    def metric(self, name: str) -> dict[str, float]:
        """Samples of one name by their labels."""
        lines = self.client.get_text("/metrics").splitlines()
        found = [
            line.rpartition(" ") for line in lines if line.startswith((name + "{", name + " "))
        ]
        return {labels.removeprefix(name): float(value) for labels, _, value in found}

    def value(self, name: str) -> float:
        (value,) = self.metric(name).values()
        return value


@pytest.fixture
def make() -> Iterator[Make]:
    with ExitStack() as stack:

        def pair(*, faults: Faults | None = None, **behaviour: Any) -> Pair:
            quick = {"head_s": 0.0, "prefill_token_s": 0.0, "step_s": 0.0, **behaviour}
            server = ScriptedServer(behaviour=Behaviour(**quick), faults=faults)
            stack.enter_context(server)
            return Pair(server, stack.enter_context(Client(server.url, model="scripted")))

        yield pair


class TestHealthy:
    def test_it_lists_one_model(self, make: Make) -> None:
        page = make().client.get_text("/v1/models")
        assert page.count('"id":') == 1
        assert '"id":"scripted"' in page

    def test_it_is_healthy_and_has_a_version(self, make: Make) -> None:
        pair = make()
        assert pair.client.get_text("/health") == ""
        assert pair.client.get_text("/version") == '{"version":"0.32.0"}'

    def test_a_chat_streams_with_usage_ids_and_cached_tokens(self, make: Make) -> None:
        request = make().ask()
        assert request.failure is None
        assert request.usage.completion_tokens == 12
        assert request.usage.cached_tokens == 0
        assert [chunk.tokens for chunk in request.chunks] == [1] * 12
        assert request.finish_reason == "length"
        assert request.warnings == ()

    def test_it_may_stop_by_itself(self, make: Make) -> None:
        request = make(answer_tokens=5).ask()
        assert (request.usage.completion_tokens, request.finish_reason) == (5, "stop")

    def test_the_same_prompt_has_the_same_answer(self, make: Make) -> None:
        pair = make()
        digests = [pair.ask(question).output_digest for question in ("a", "a", "b")]
        assert digests[0] == digests[1] != digests[2]

    def test_it_answers_without_a_stream_too(self, make: Make) -> None:
        body = {"model": "scripted", "prompt": "a b", "max_tokens": 3}
        answer = make().client.post_json("/v1/completions", body)
        assert answer["usage"]["completion_tokens"] == 3
        assert len(answer["choices"][0]["text"].split()) == 3

    def test_another_models_name_is_refused(self, make: Make) -> None:
        pair = make()
        with Client(pair.server.url, model="other") as stranger:
            request = Pair(pair.server, stranger).ask()
        assert request.http_status == 404


class TestTokenizer:
    def test_it_counts_words(self, make: Make) -> None:
        tokens = make().client.post_json("/tokenize", {"prompt": "a b a"})
        assert tokens["count"] == 3
        assert tokens["tokens"][0] == tokens["tokens"][2] != tokens["tokens"][1]

    def test_it_counts_a_chat_as_its_usage_does(self, make: Make) -> None:
        pair = make()
        messages = [{"role": "system", "content": LONG}, {"role": "user", "content": "hello"}]
        tokens = pair.client.post_json("/tokenize", {"messages": messages})
        assert tokens["count"] == pair.ask().usage.prompt_tokens == 100 + 1 + 3


class TestPrefixCache:
    def test_a_repeated_prompt_hits_all_whole_blocks_but_the_last_token(self, make: Make) -> None:
        pair = make()
        pair.ask()
        # 104 tokens, of which the last is always computed: 6 blocks of 16.
        assert pair.ask().usage.cached_tokens == 96

    def test_a_branch_hits_the_common_blocks(self, make: Make) -> None:
        pair = make(block_size=8)
        pair.ask("one")
        # 101 tokens of system prompt, a role mark, then another question: 12 blocks of 8.
        assert pair.ask("two").usage.cached_tokens == 96

    def test_a_drafter_costs_a_block(self, make: Make) -> None:
        pair = make(draft_tokens=3)
        pair.ask()
        assert pair.ask().usage.cached_tokens == 80

    def test_what_was_generated_is_cached_too(self, make: Make) -> None:
        pair = make(block_size=1)
        body = {"model": "scripted", "prompt": "a b c", "max_tokens": 4}
        said = pair.client.post_json("/v1/completions", body)["choices"][0]["text"]
        again = {**body, "prompt": f"a b c{said} d"}
        usage = pair.client.post_json("/v1/completions", again)["usage"]
        assert usage["prompt_tokens_details"]["cached_tokens"] == 7

    def test_a_nonce_before_everything_misses(self, make: Make) -> None:
        pair = make()
        pair.ask()
        assert pair.ask(system=f"nonce {LONG}").usage.cached_tokens == 0

    def test_a_small_cache_forgets(self, make: Make) -> None:
        pair = make(cache_blocks=4)
        pair.ask()
        pair.ask(system=" ".join(f"other{n}" for n in range(100)))
        assert pair.ask().usage.cached_tokens == 0

    def test_a_cached_prompt_has_its_first_token_sooner(self, make: Make) -> None:
        pair = make(prefill_token_s=0.002)
        waits = []
        for _ in range(2):
            stamps = pair.ask().stamps
            assert stamps.first_token_ns is not None
            assert stamps.sent_ns is not None
            waits.append(stamps.first_token_ns - stamps.sent_ns)
        assert waits[0] >= 200_000_000
        assert waits[1] < waits[0]

    def test_a_delay_may_be_scripted_by_number(self, make: Make) -> None:
        pair = make(delay=lambda number: 0.2 if number == 1 else 0.0)
        pair.ask()
        stamps = pair.ask().stamps
        assert stamps.first_token_ns is not None
        assert stamps.sent_ns is not None
        assert stamps.first_token_ns - stamps.sent_ns >= 190_000_000


class TestMetrics:
    def test_the_page_really_counts(self, make: Make) -> None:
        pair = make()
        pair.ask()
        pair.ask()
        assert pair.value("vllm:prefix_cache_queries_total") == 208
        assert pair.value("vllm:prefix_cache_hits_total") == 96
        assert pair.value("vllm:prompt_tokens_total") == 208
        assert pair.value("vllm:generation_tokens_total") == 24
        assert pair.value("vllm:num_requests_running") == 0
        assert sum(pair.metric("vllm:request_success_total").values()) == 2

    def test_each_counter_has_its_birth_beside_it_m2(self, make: Make) -> None:
        pair = make()
        assert pair.value("vllm:prefix_cache_queries_created") == pair.server.started_at
        assert pair.value("process_start_time_seconds") == pair.server.started_at

    def test_no_drafter_has_no_speculation_on_the_page(self, make: Make) -> None:
        assert "spec_decode" not in make().client.get_text("/metrics")

    def test_a_drafter_is_counted_and_agrees_with_the_tokens(self, make: Make) -> None:
        pair = make(draft_tokens=3, acceptance=0.5)
        request = pair.ask(max_tokens=25)
        drafts = pair.value("vllm:spec_decode_num_drafts_total")
        accepted = pair.value("vllm:spec_decode_num_accepted_tokens_total")
        assert pair.value("vllm:spec_decode_num_draft_tokens_total") == 3 * drafts
        # The first token is the prefill's; every step gives one more than was accepted.
        assert 1 + drafts + accepted == request.usage.completion_tokens == 25
        assert len(request.chunks) == 1 + drafts
        by_position = pair.metric("vllm:spec_decode_num_accepted_tokens_per_pos_total")
        assert sum(by_position.values()) == accepted
        assert len(by_position) == 3

    def test_foreign_traffic_and_a_restart_can_be_planted(self, make: Make) -> None:
        pair = make()
        pair.ask()
        pair.server.counts.prompt_tokens += 1000
        assert pair.value("vllm:prompt_tokens_total") == 1104
        pair.server.restart()
        assert pair.value("vllm:prompt_tokens_total") == 0
        assert pair.ask().usage.cached_tokens == 0

    def test_the_page_is_what_its_readers_expect(self, make: Make) -> None:
        from prometheus_client.parser import (  # noqa: PLC0415 - only this test needs it
            text_string_to_metric_families,
        )

        pair = make(draft_tokens=2)
        pair.ask()
        families = {
            f.name: f for f in text_string_to_metric_families(pair.client.get_text("/metrics"))
        }
        assert families["vllm:prefix_cache_queries"].type == "counter"
        (sample, *_) = families["vllm:prefix_cache_queries"].samples
        assert sample.labels == {"engine": "0", "model_name": "scripted"}
        assert families["vllm:cache_config_info"].samples[0].labels["block_size"] == "16"


class TestFaults:
    def test_cache_off(self, make: Make) -> None:
        pair = make(faults=Faults(cache_off=True))
        assert [pair.ask().usage.cached_tokens for _ in "ab"] == [0, 0]
        assert pair.value("vllm:prefix_cache_queries_total") == 0

    def test_no_cached_tokens_in_usage(self, make: Make) -> None:
        pair = make(faults=Faults(no_cached_in_usage=True))
        assert [pair.ask().usage.cached_tokens for _ in "ab"] == [None, None]
        assert pair.value("vllm:prefix_cache_hits_total") == 96

    def test_drafter_silent(self, make: Make) -> None:
        pair = make(draft_tokens=3, faults=Faults(drafter_silent=True))
        assert {chunk.tokens for chunk in pair.ask().chunks} == {1}
        assert pair.value("vllm:spec_decode_num_drafts_total") == 0

    def test_zero_acceptance(self, make: Make) -> None:
        pair = make(draft_tokens=3, faults=Faults(zero_acceptance=True))
        assert {chunk.tokens for chunk in pair.ask().chunks} == {1}
        assert pair.value("vllm:spec_decode_num_draft_tokens_total") == 33
        assert pair.value("vllm:spec_decode_num_accepted_tokens_total") == 0

    def test_death_after_some(self, make: Make) -> None:
        pair = make(faults=Faults(die_after=2))
        assert [pair.ask().completed for _ in "abc"] == [True, True, False]

    def test_garbage(self, make: Make) -> None:
        pair = make(faults=Faults(garbage=True))
        body = {"model": "scripted", "prompt": "a", "max_tokens": 5}
        answer = pair.client.post_json("/v1/completions", body)
        assert answer["choices"][0]["text"] == "!!!!!"

    def test_no_token_ids(self, make: Make) -> None:
        pair = make(faults=Faults(no_token_ids=True))
        assert [chunk.tokens for chunk in pair.ask(max_tokens=3).chunks] == [1, 1, 1]

    def test_a_fault_may_come_and_go(self, make: Make) -> None:
        pair = make()
        pair.ask()
        pair.server.faults.cache_off = True
        assert pair.ask().usage.cached_tokens == 0
        pair.server.faults.cache_off = False
        assert pair.ask().usage.cached_tokens == 96


class TestConcurrency:
    def test_a_client_that_leaves_is_counted_as_aborted(self, make: Make) -> None:
        pair = make(step_s=0.01)
        with Client(pair.server.url, model="scripted", timeout_s=0.2) as impatient:
            request = Pair(pair.server, impatient).ask(max_tokens=10_000)
        assert request.failure is not None
        assert pair.server.wait_open(0)
        labels = '{engine="0",finished_reason="abort",model_name="scripted"}'
        assert pair.metric("vllm:request_success_total")[labels] == 1
        assert pair.value("vllm:num_requests_running") == 0

    def test_waiting_for_what_does_not_come_says_so(self, make: Make) -> None:
        assert not make().server.wait_open(1, within_s=0.0)
