"""What a stream says, in every dialect that servers speak: cases S1-S5, S7-S9, S17, S18, F2."""

# ruff: noqa: ANN401 - chunks are JSON, and builders pass on whatever fields they are given

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pytest_llmperf.record import Chunk, Failure, Usage
from pytest_llmperf.stream import Reading

Reader = Callable[..., Reading]
DONE = "[DONE]"
MS = 1_000_000


def delta(index: int = 0, /, *, finish: str | None = None, **fields: Any) -> dict[str, Any]:
    """A chunk with one choice; ``usage``, ``ids`` and top-level fields go where they belong."""
    above = {"usage", "id", "model"} & fields.keys()
    top: dict[str, Any] = {key: fields.pop(key) for key in above}
    choice: dict[str, Any] = {"index": index, "finish_reason": finish}
    if "ids" in fields:
        choice["token_ids"] = list(range(fields.pop("ids")))
    return {"choices": [{**choice, "delta": fields}], **top}


def used(completion: int | None, prompt: int = 5, **more: Any) -> dict[str, Any]:
    return {"prompt_tokens": prompt, "completion_tokens": completion, **more}


def total(completion: int, **more: Any) -> dict[str, Any]:
    return {"choices": [], "usage": used(completion, **more)}


def tokens(reading: Reading) -> list[int | None]:
    return [chunk.tokens for chunk in reading.chunks]


class TestUsageS1:
    A, B, STOP = delta(content="a"), delta(content="b"), delta(finish="stop")

    @pytest.mark.parametrize(
        "rest",
        [
            pytest.param([STOP, total(2)], id="after the finish chunk"),
            pytest.param([delta(finish="stop", usage=used(2))], id="in the finish chunk"),
            pytest.param([STOP, total(2), {"choices": []}], id="an empty chunk behind it"),
            pytest.param([STOP, total(2), {"choices": [], "usage": None}], id="a null behind it"),
            pytest.param([STOP, {"choices": None, "usage": used(2)}], id="choices null"),
            pytest.param([STOP, {"usage": used(2)}], id="choices absent"),
            pytest.param([STOP, total(1), total(2)], id="twice"),
        ],
    )
    def test_usage_is_found_wherever_it_comes_and_never_extends_the_last_token(
        self, reading: Reader, rest: list[dict[str, Any]]
    ) -> None:
        read = reading(self.A, self.B, *rest, DONE)
        assert read.usage == Usage(prompt_tokens=5, completion_tokens=2)
        assert read.tokens_from == "usage"
        assert (read.first_token_ns, read.last_token_ns) == (10 * MS, 20 * MS)
        assert tokens(read) == [None, None]
        assert read.failure is None

    def test_usage_null_on_every_chunk_is_no_usage(self, reading: Reader) -> None:
        chunks = [{**each, "usage": None} for each in (self.A, self.B, self.STOP)]
        assert reading(*chunks, total(2), DONE).usage.completion_tokens == 2

    def test_without_any_usage_the_count_is_unknown_and_never_that_of_chunks(
        self, reading: Reader
    ) -> None:
        read = reading(self.A, self.B, self.STOP, DONE)
        assert (read.usage, read.tokens_from, tokens(read)) == (Usage(), "unknown", [None, None])

    def test_a_field_that_a_later_usage_lacks_keeps_its_last_value(self, reading: Reader) -> None:
        detailed = total(2, prompt_tokens_details={"cached_tokens": 3})
        read = reading(self.A, self.STOP, detailed, {"choices": [], "usage": used(2)}, DONE)
        assert read.usage.cached_tokens == 3

    @pytest.mark.parametrize(
        ("details", "cached"),
        [
            ({}, None),
            ({"prompt_tokens_details": None}, None),
            ({"prompt_tokens_details": {"cached_tokens": None}}, None),
            ({"prompt_tokens_details": {"cached_tokens": 0}}, 0),
            ({"prompt_tokens_details": {"cached_tokens": 64}}, 64),
            ({"prompt_tokens_details": {"cached_tokens": "64"}}, None),
            ({"prompt_tokens_details": {"cached_tokens": True}}, None),
        ],
    )
    def test_cached_unknown_none_and_some_are_three_things(
        self, reading: Reader, details: dict[str, Any], cached: int | None
    ) -> None:
        read = reading(self.A, self.STOP, total(1, **details), DONE)
        assert read.usage.cached_tokens == cached


class TestRunningUsageS2:
    def test_differences_are_tokens_and_totals_are_never_summed(self, reading: Reader) -> None:
        read = reading(
            delta(role="assistant", content="", usage=used(0)),
            delta(content="a", usage=used(1)),
            delta(content="bc", usage=used(3)),
            delta(content="def", usage=used(6)),
            delta(finish="stop", usage=used(6)),
            DONE,
        )
        assert tokens(read) == [1, 2, 3]
        assert read.usage.completion_tokens == 6
        assert read.last_token_ns == 40 * MS

    @pytest.mark.parametrize(
        ("totals", "detail"),
        [
            ((1, 6, 3), "usage fell from 6 to 3 completion tokens"),
            ((1, 2, 3), "usage fell from 3 to 2 completion tokens"),
            ((1, -1, 3), "usage counts -1 completion tokens"),
        ],
    )
    def test_usage_that_falls_breaks_the_protocol(
        self, reading: Reader, totals: tuple[int, ...], detail: str
    ) -> None:
        chunks = [delta(content="a", usage=used(each)) for each in totals]
        read = reading(*chunks, delta(finish="stop"), total(2), DONE)
        assert read.failure == Failure(kind="protocol", detail=detail)
        assert tokens(read) == [None, None, None]
        assert read.tokens_from == "unknown"

    def test_an_increment_with_an_empty_delta_bears_hidden_tokens(self, reading: Reader) -> None:
        read = reading(
            delta(role="assistant", usage=used(0)),
            delta(usage=used(2)),
            delta(content="abc", usage=used(3)),
            delta(finish="stop", usage=used(4)),
            DONE,
        )
        assert [(c.channel, c.tokens) for c in read.chunks] == [
            ("hidden", 2),
            ("content", 1),
            ("hidden", 1),
        ]
        assert (read.first_token_ns, read.first_visible_ns) == (20 * MS, 30 * MS)

    def test_a_role_chunk_with_a_token_in_its_usage_lends_it_to_the_next(
        self, reading: Reader
    ) -> None:
        read = reading(
            delta(role="assistant", content="", usage=used(1)),
            delta(content="a", usage=used(1)),
            delta(content="b", usage=used(2), finish="stop"),
            DONE,
        )
        assert tokens(read) == [1, 1]
        assert read.first_token_ns == 20 * MS

    def test_text_that_was_held_back_bears_no_further_tokens(self, reading: Reader) -> None:
        read = reading(
            delta(usage=used(3)), delta(content="abc", usage=used(3), finish="stop"), DONE
        )
        assert tokens(read) == [3, 0]
        assert read.last_token_ns == 20 * MS

    def test_usage_on_some_chunks_only_is_not_split_over_the_others(self, reading: Reader) -> None:
        read = reading(
            delta(content="a"),
            delta(content="b", usage=used(2)),
            delta(content="c"),
            total(3),
            DONE,
        )
        assert tokens(read) == [None, None, None]

    def test_usage_that_stays_zero_until_the_end_is_no_running_total(self, reading: Reader) -> None:
        chunks = [delta(content=each, usage=used(0)) for each in "ab"]
        read = reading(*chunks, delta(finish="stop", usage=used(0)), total(2), DONE)
        assert tokens(read) == [None, None]
        assert read.usage.completion_tokens == 2

    def test_one_chunk_with_everything_bears_everything(self, reading: Reader) -> None:
        read = reading(delta(content="abcd", usage=used(4), finish="stop"), DONE)
        assert tokens(read) == [4]


class TestFirstTokenS3:
    def test_a_role_chunk_is_no_first_token(self, reading: Reader) -> None:
        read = reading(
            (5, delta(role="assistant", content="")), (214, delta(content="H", finish="stop")), DONE
        )
        assert (read.first_event_ns, read.first_token_ns) == (5 * MS, 214 * MS)

    @pytest.mark.parametrize("nothing", [{"content": ""}, {"content": None}, {}])
    def test_empty_null_and_absent_content_are_the_same(
        self, reading: Reader, nothing: dict[str, Any]
    ) -> None:
        read = reading(
            delta(**nothing), delta(role="assistant", **nothing), delta(content="H"), DONE
        )
        assert read.first_token_ns == 30 * MS
        assert len(read.chunks) == 1

    def test_a_role_with_text_in_the_same_delta_is_a_token(self, reading: Reader) -> None:
        assert reading(delta(role="assistant", content="H"), DONE).first_token_ns == 10 * MS

    def test_a_null_delta_and_a_null_choice_bear_nothing(self, reading: Reader) -> None:
        odd = [{"choices": [{"index": 0, "delta": None}]}, {"choices": [None]}, {"choices": "x"}]
        assert reading(*odd, delta(content="H"), DONE).first_token_ns == 40 * MS

    def test_the_end_mark_extends_nothing(self, reading: Reader) -> None:
        read = reading(delta(content="H", finish="stop"), (900, DONE))
        assert (read.first_token_ns, read.last_token_ns) == (10 * MS, 10 * MS)


class TestSpeculationS4AndIntervalsS7:
    def test_chunks_of_four_tokens_are_four_tokens_each(self, reading: Reader) -> None:
        chunks = [(40 * (n + 1), delta(content="abcd", usage=used(4 * (n + 1)))) for n in range(10)]
        read = reading(*chunks, (401, delta(finish="stop", usage=used(40))), (402, DONE))
        assert tokens(read) == [4] * 10
        # 36 tokens in 9 gaps of 40 ms are 100 tokens a second; 9 chunks would be 25.
        assert read.last_token_ns is not None
        assert read.first_token_ns is not None
        assert (40 - 4) / ((read.last_token_ns - read.first_token_ns) / 1e9) == pytest.approx(100)

    def test_a_stream_interval_of_ten_gives_one_ten_ten_four(self, reading: Reader) -> None:
        totals = (1, 11, 21, 25)
        chunks = [delta(content="0123456789", usage=used(each)) for each in totals]
        read = reading(*chunks, delta(finish="stop", usage=used(25)), DONE)
        assert tokens(read) == [1, 10, 10, 4]
        assert read.warnings == ()


class TestTokenIds:
    def test_ids_are_counted_where_usage_does_not_run(self, reading: Reader) -> None:
        read = reading(delta(content="a", ids=1), delta(content="bcd", ids=3), total(4), DONE)
        assert (tokens(read), read.tokens_from) == ([1, 3], "usage")

    def test_ids_alone_make_a_count_that_says_where_it_is_from(self, reading: Reader) -> None:
        read = reading(delta(content="a", ids=1), delta(content="b", ids=2, finish="stop"), DONE)
        assert (tokens(read), read.tokens_from) == ([1, 2], "token_ids")
        assert read.usage.completion_tokens is None

    def test_ids_on_some_chunks_only_leave_the_count_unknown(self, reading: Reader) -> None:
        read = reading(delta(content="a", ids=1), delta(content="b", finish="stop"), DONE)
        assert (tokens(read), read.tokens_from) == ([1, None], "unknown")

    def test_a_chunk_with_ids_and_an_empty_delta_bears_hidden_tokens(self, reading: Reader) -> None:
        read = reading(
            delta(role="assistant", content=""),
            delta(ids=2),
            delta(content="abc", ids=1),
            delta(finish="stop", ids=1),
            DONE,
        )
        assert [chunk.channel for chunk in read.chunks] == ["hidden", "content", "hidden"]
        assert (read.first_token_ns, read.first_visible_ns) == (20 * MS, 30 * MS)
        assert read.last_token_ns == 40 * MS

    def test_no_ids_are_no_tokens(self, reading: Reader) -> None:
        read = reading(delta(ids=0), delta(content="a", ids=1, finish="stop"), DONE)
        assert read.first_token_ns == 20 * MS

    def test_running_usage_is_believed_before_ids(self, reading: Reader) -> None:
        read = reading(delta(content="ab", ids=1, usage=used(2)), delta(finish="stop"), DONE)
        assert tokens(read) == [2]


class TestDeltasAreNotTokenisedS5:
    def test_pieces_of_a_word_are_never_counted(self, reading: Reader) -> None:
        read = reading(delta(content="Hel"), delta(content="lo", finish="stop"), total(1), DONE)
        assert (read.usage.completion_tokens, read.tokens_from) == (1, "usage")
        assert tokens(read) == [None, None]

    def test_the_whole_text_is_there_for_whoever_counts_it_once(self, reading: Reader) -> None:
        assert reading(delta(content="Hel"), delta(content="lo"), DONE).text == "Hello"


class TestReasoningS8:
    @pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
    def test_either_name_is_generated_text(self, reading: Reader, name: str) -> None:
        told: dict[str, Any] = {name: "x"}
        thoughts = [delta(**told) for _ in range(9)]
        read = reading(*thoughts, delta(content="y", finish="stop"), DONE)
        assert (read.first_token_ns, read.first_answer_ns) == (10 * MS, 100 * MS)
        assert [chunk.channel for chunk in read.chunks] == ["reasoning"] * 9 + ["content"]
        assert read.warnings == ()

    def test_the_same_text_under_both_names_counts_once(self, reading: Reader) -> None:
        read = reading(delta(reasoning="think", reasoning_content="think", finish="stop"), DONE)
        assert read.text == "think"
        assert len(read.chunks) == 1

    def test_reasoning_alone_has_no_answer(self, reading: Reader) -> None:
        read = reading(delta(reasoning="x", finish="length"), DONE)
        assert (read.first_token_ns, read.first_answer_ns) == (10 * MS, None)
        assert read.failure is None

    def test_an_unknown_string_that_grows_is_named(self, reading: Reader) -> None:
        thoughts = [delta(thinking="x", usage=used(n + 1)) for n in range(3)]
        read = reading(*thoughts, delta(content="y", usage=used(4), finish="stop"), DONE)
        warning = "unknown field: 'thinking' of the delta grows; its text is not counted as output"
        assert read.warnings == (warning,)
        assert read.first_token_ns == 10 * MS
        assert read.first_visible_ns == 40 * MS

    def test_it_is_named_without_running_usage_too(self, reading: Reader) -> None:
        read = reading(delta(thinking="a"), delta(thinking="b"), delta(content="y"), total(3), DONE)
        assert [each.split(";")[0] for each in read.warnings] == [
            "unknown field: 'thinking' of the delta grows"
        ]

    def test_a_label_beside_the_text_is_not(self, reading: Reader) -> None:
        read = reading(*[delta(content=each, phase="answer") for each in "abc"], DONE)
        assert read.warnings == ()


class TestToolCallsS9:
    @staticmethod
    def call(**function: Any) -> dict[str, Any]:
        return {"tool_calls": [{"index": 0, "function": function}]}

    def test_names_and_arguments_are_output(self, reading: Reader) -> None:
        read = reading(
            delta(role="assistant", content=None),
            delta(**self.call(name="f", arguments="")),
            delta(**self.call(arguments='{"a')),
            delta(**self.call(arguments='":1}')),
            delta(finish="tool_calls"),
            total(9),
            DONE,
        )
        assert (read.first_token_ns, read.last_token_ns) == (20 * MS, 40 * MS)
        assert read.first_answer_ns == 20 * MS
        assert {chunk.channel for chunk in read.chunks} == {"tool_call"}
        assert (read.finish_reason, read.usage.completion_tokens) == ("tool_calls", 9)
        assert (read.failure, read.warnings) == (None, ())

    def test_the_legacy_function_call_is_output_too(self, reading: Reader) -> None:
        read = reading(delta(function_call={"name": "f", "arguments": "{}"}, finish="stop"), DONE)
        assert [chunk.channel for chunk in read.chunks] == ["tool_call"]

    def test_arguments_as_an_object_are_output(self, reading: Reader) -> None:
        read = reading(delta(**self.call(arguments={"a": 1}), finish="stop"), DONE)
        assert read.text == '{"a":1}'

    @pytest.mark.parametrize("odd", [[], None, [None], [{}], [{"function": None}], "x"])
    def test_empty_and_odd_calls_bear_nothing(self, reading: Reader, odd: Any) -> None:
        read = reading(delta(tool_calls=odd), delta(content="a", finish="stop"), DONE)
        assert read.first_token_ns == 20 * MS


class TestTextIncompleteS7:
    def test_ids_that_usage_exceeds_are_told(self, reading: Reader) -> None:
        chunks = [delta(content="word ", ids=1) for _ in range(30)]
        read = reading(*chunks, delta(finish="stop"), total(40), DONE)
        assert read.warnings == ("text incomplete: usage counts 40 tokens, the chunks bore 30",)
        assert read.usage.completion_tokens == 40

    def test_running_usage_that_the_last_usage_exceeds_is_told(self, reading: Reader) -> None:
        chunks = [delta(content="word ", usage=used(n + 1)) for n in range(30)]
        read = reading(*chunks, delta(finish="stop", usage=used(30)), total(40), DONE)
        assert read.warnings == ("text incomplete: usage counts 40 tokens, the chunks bore 30",)

    def test_tokens_without_text_are_told(self, reading: Reader) -> None:
        chunks = [delta(content="word ", usage=used(n + 1)) for n in range(30)]
        hidden = [delta(usage=used(31 + n)) for n in range(10)]
        read = reading(*chunks, *hidden, delta(finish="stop", usage=used(40)), DONE)
        assert read.warnings == (
            "text incomplete: of 40 tokens by usage, 10 came without any text",
        )
        assert sum(chunk.tokens or 0 for chunk in read.chunks) == 40

    def test_a_text_of_fewer_bytes_than_tokens_is_told(self, reading: Reader) -> None:
        chunks = [delta(content="x") for _ in range(30)]
        read = reading(*chunks, delta(finish="stop"), total(40), DONE)
        assert read.warnings == (
            "text incomplete: usage counts 40 tokens, the text has only 30 bytes",
        )

    def test_an_end_token_without_text_is_right(self, reading: Reader) -> None:
        read = reading(delta(content="x", usage=used(1)), delta(finish="stop", usage=used(2)), DONE)
        assert read.warnings == ()

    def test_text_that_comes_late_and_whole_is_right(self, reading: Reader) -> None:
        call: dict[str, Any] = {
            "tool_calls": [{"function": {"name": "set_light", "arguments": '{"room":"hall"}'}}]
        }
        hidden = [delta(usage=used(n + 1)) for n in range(12)]
        read = reading(*hidden, delta(**call, usage=used(13), finish="tool_calls"), DONE)
        assert read.warnings == ()


class TestWholeTextS17:
    WARNING = "whole text: content deltas repeat everything before them"

    def test_two_repeats_in_a_row_are_told(self, reading: Reader) -> None:
        read = reading(*[delta(content=each) for each in ("A", "AB", "ABC")], total(3), DONE)
        assert read.warnings == (self.WARNING,)
        assert read.usage.completion_tokens == 3

    def test_a_repeat_that_begins_late_is_told(self, reading: Reader) -> None:
        said = ("Once ", "upon", "Once upon", "Once upon a", " time")
        assert reading(*[delta(content=each) for each in said], DONE).warnings == (self.WARNING,)

    @pytest.mark.parametrize(
        "said", [("A", "AB", "C"), ("ha", "ha", "ha", "ha"), ("a", "b", "a", "b"), ("A", "AB")]
    )
    def test_words_that_come_again_are_not(self, reading: Reader, said: tuple[str, ...]) -> None:
        assert reading(*[delta(content=each) for each in said], DONE).warnings == ()

    def test_each_channel_is_looked_at_for_itself(self, reading: Reader) -> None:
        read = reading(*[delta(reasoning=each) for each in ("A", "AB", "ABC")], DONE)
        assert read.warnings == ("whole text: reasoning deltas repeat everything before them",)


class TestServerTimingsS18:
    def test_native_timings_are_kept_beside_ours(self, reading: Reader) -> None:
        timings = {"cache_n": 30, "prompt_n": 2, "predicted_n": 1, "predicted_ms": 40.0}
        read = reading(delta(content="a", finish="stop"), {"choices": [], "timings": timings}, DONE)
        assert read.server_timings == {"timings": timings}
        assert read.usage == Usage()
        assert read.last_token_ns == 10 * MS

    @pytest.mark.parametrize("choices", [[], [{"index": 0, "delta": {"role": "assistant"}}]])
    def test_progress_before_the_first_token_is_no_token(
        self, reading: Reader, choices: list[Any]
    ) -> None:
        progress = [
            {"choices": choices, "prompt_progress": {"total": 100, "processed": each}}
            for each in (0, 50)
        ]
        read = reading(*progress, delta(content="a", finish="stop"), DONE)
        assert (read.first_event_ns, read.first_token_ns) == (10 * MS, 30 * MS)
        assert read.server_timings == {"prompt_progress": {"total": 100, "processed": 50}}

    def test_none_is_not_an_empty_set_of_timings(self, reading: Reader) -> None:
        assert (
            reading(delta(content="a"), {"choices": [], "metrics": None}, DONE).server_timings
            is None
        )

    def test_no_prompt_tokens_for_a_prompt_is_a_report_after_the_cache(
        self, reading: Reader
    ) -> None:
        read = reading(delta(content="a", finish="stop"), total(1, prompt=0), DONE)
        assert read.warnings == (
            "reported after cache: usage says 0 prompt tokens for a prompt that is not empty",
        )
        assert read.usage.prompt_tokens == 0

    def test_no_prompt_tokens_for_no_prompt_is_right(self, reading: Reader) -> None:
        read = reading(
            delta(content="a", finish="stop"), total(1, prompt=0), DONE, has_prompt=False
        )
        assert read.warnings == ()


class TestSplicedF2:
    @pytest.mark.parametrize(
        ("first", "then", "warning"),
        [
            ({"model": "a"}, {"model": "b"}, "spliced: the model changed in mid-stream: a -> b"),
            ({"id": "1"}, {"id": "2"}, "spliced: the id changed in mid-stream: 1 -> 2"),
            ({}, {"role": "assistant"}, "spliced: a new role chunk came in mid-stream"),
        ],
    )
    def test_another_answerer_is_told(
        self, reading: Reader, first: dict[str, Any], then: dict[str, Any], warning: str
    ) -> None:
        read = reading(
            delta(role="assistant", **first),
            delta(content="a", **first),
            delta(**then),
            delta(content="b", **{k: v for k, v in then.items() if k != "role"}, finish="stop"),
            DONE,
        )
        assert read.warnings == (warning,)
        assert read.failure is None

    def test_a_count_that_begins_anew_is_unknown_and_no_broken_protocol(
        self, reading: Reader
    ) -> None:
        read = reading(
            delta(content="abc", usage=used(3), id="1"),
            delta(content="a", usage=used(1), id="2", finish="stop"),
            DONE,
        )
        assert (read.failure, read.tokens_from) == (None, "unknown")

    def test_a_role_on_every_delta_is_a_habit(self, reading: Reader) -> None:
        chunks = [delta(role="assistant", content=each) for each in "abc"]
        assert reading(*chunks, DONE).warnings == ()

    def test_an_empty_id_or_model_is_no_other_one(self, reading: Reader) -> None:
        read = reading(
            {"choices": [], "id": "", "model": ""},
            delta(content="a", id="1", model="m", finish="stop"),
            {"choices": [], "id": "", "model": ""},
            DONE,
        )
        assert read.warnings == ()
        assert (read.answered_by.model, read.answered_by.response_id) == ("m", "1")

    def test_each_choice_may_have_its_role_when_it_begins(self, reading: Reader) -> None:
        read = reading(
            delta(role="assistant"),
            delta(content="a"),
            delta(1, role="assistant"),
            delta(1, content="b"),
            DONE,
        )
        assert read.warnings == ()


class TestSeveralChoices:
    def test_tokens_of_all_choices_are_counted(self, reading: Reader) -> None:
        read = reading(delta(content="a", ids=1), delta(1, content="b", ids=2), total(3), DONE)
        assert tokens(read) == [1, 2]

    def test_choices_in_one_chunk_are_added_up(self, reading: Reader) -> None:
        both = {"choices": [*delta(content="a", ids=1)["choices"], *delta(1, ids=2)["choices"]]}
        assert tokens(reading(both, total(3), DONE)) == [3]

    def test_running_usage_for_each_choice_is_read_as_such(self, reading: Reader) -> None:
        read = reading(
            delta(content="a", usage=used(1)),
            delta(1, content="b", usage=used(1)),
            delta(content="aa", usage=used(3)),
            delta(1, content="b", usage=used(2)),
            total(5),
            DONE,
        )
        assert tokens(read) == [1, 1, 2, 1]
        assert read.failure is None

    def test_running_usage_for_all_choices_is_read_as_such(self, reading: Reader) -> None:
        read = reading(
            delta(content="a", usage=used(1)),
            delta(1, content="b", usage=used(2)),
            delta(content="aa", usage=used(4)),
            total(4),
            DONE,
        )
        assert tokens(read) == [1, 1, 2]

    def test_the_digest_is_that_of_the_texts_however_they_were_cut(self, reading: Reader) -> None:
        one = reading(delta(content="ab"), delta(1, content="c"), DONE)
        other = reading(delta(1, content="c"), delta(content="a"), delta(content="b"), DONE)
        assert one.output_digest == other.output_digest != reading(DONE).output_digest
        assert (
            one.output_digest != reading(delta(reasoning="ab"), delta(1, content="c")).output_digest
        )


class TestCompletions:
    def test_text_of_a_completion_is_content(self, reading: Reader) -> None:
        read = reading(
            {"choices": [{"index": 0, "text": "a", "token_ids": [1]}]},
            {"choices": [{"index": 0, "text": "", "finish_reason": "stop"}]},
            total(1),
            DONE,
        )
        assert read.chunks == (Chunk(at_ns=10 * MS, tokens=1, channel="content"),)
        assert read.finish_reason == "stop"


class TestAnswerer:
    def test_the_fingerprint_comes_on_the_last_chunk(self, reading: Reader) -> None:
        read = reading(
            delta(content="a", id="x", model="m"), {"choices": [], "system_fingerprint": "fp"}, DONE
        )
        assert read.answered_by.system_fingerprint == "fp"
