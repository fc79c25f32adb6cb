"""Your own traffic: what files may say, what is named where they are wrong, what stays secret."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_llmperf.client import Client
from pytest_llmperf.errors import UsageError
from pytest_llmperf.testing import ScriptedServer, done, event, refusal, stream
from pytest_llmperf.traffic import BLOCK_TOKENS, Traffic

SECRET = "the-secret-of-the-house"  # noqa: S105 - it is looked for in what is told

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def made(*lines: object, name: str = "log.jsonl") -> Path:
        path = tmp_path / name
        texts = (each if isinstance(each, str) else json.dumps(each) for each in lines)
        path.write_text("\n".join(texts), encoding="utf-8")
        return path

    return made


def chat(text: str = SECRET, **fields: object) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], "max_tokens": 8, **fields}


def told(path: Path) -> str:
    with pytest.raises(UsageError) as caught:
        Traffic.from_jsonl(path)
    return str(caught.value)


class TestJsonLines:
    def test_a_line_is_sent_as_it_was_but_for_what_says_who_asked(self, write: Write) -> None:
        line = chat(
            model="m", user="u", stream=True, tools=[{"type": "function"}], top_p=0.5, seed=3
        )
        (request,) = Traffic.from_jsonl(write(line)).items
        body = request.body("ours", token_ids=False)
        assert body["messages"] == line["messages"]
        assert (body["model"], body["top_p"], body["seed"], body["max_tokens"]) == (
            "ours",
            0.5,
            3,
            8,
        )
        assert body["tools"] == line["tools"]
        assert "user" not in body

    def test_a_line_without_temperature_asks_for_none(self, write: Write) -> None:
        cold, warm = Traffic.from_jsonl(write(chat(), chat(temperature=0.7))).items
        assert (cold.temperature, warm.temperature) == (0.0, 0.7)

    def test_a_completion_is_a_text(self, write: Write) -> None:
        (request,) = Traffic.from_jsonl(write({"prompt": "once", "max_tokens": 2})).items
        assert (request.endpoint, request.text) == ("completions", "once")

    def test_times_are_counted_from_the_first_request(self, write: Write) -> None:
        lines = [{"timestamp": at, "body": chat(str(at))} for at in (12.5, 10.0, 11.0)]
        traffic = Traffic.from_jsonl(write(*lines))
        assert traffic.arrivals_s == (0.0, 1.0, 2.5)
        assert [each.messages[0]["content"] for each in traffic.items] == ["10.0", "11.0", "12.5"]

    def test_times_may_be_dates(self, write: Write) -> None:
        stamps = ("2026-01-01T00:00:00Z", "2026-01-01T00:00:01.500Z")
        traffic = Traffic.from_jsonl(write(*(chat(timestamp=each) for each in stamps)))
        assert traffic.arrivals_s == (0.0, 1.5)
        assert "timestamp" not in traffic.items[0].body("m", token_ids=False)

    def test_without_times_there_are_none(self, write: Write) -> None:
        assert Traffic.from_jsonl(write(chat())).arrivals_s is None

    def test_the_workload_is_named_after_its_file(self, write: Write) -> None:
        assert Traffic.from_jsonl(write(chat())).name == "log"
        assert Traffic.from_jsonl(write(chat()), name="mine").name == "mine"

    def test_all_wrong_lines_are_named_in_one_message(self, write: Write) -> None:
        path = write(
            "{",
            [],
            {"messages": []},
            "",
            chat(n=2),
            {"messages": [{"content": SECRET}]},
            chat([{"type": "image_url", "image_url": SECRET}]),  # type: ignore[arg-type]
            chat(max_tokens=0),
            chat(max_tokens=None),
            chat(temperature=SECRET),
            chat(seed=SECRET),
            chat(timestamp=SECRET),
            chat(tools=SECRET),
            {"body": SECRET},
            {"prompt": 3},
            {"text": SECRET},
        )
        reasons = [
            (1, "no JSON in UTF-8"),
            (2, "a JSON list, not an object"),
            (3, "messages is not a list with anything in it"),
            (5, "n asks for several answers; one request has one"),
            (6, "messages[0] is not an object with a role"),
            (7, "messages[0].content[0] is no text part; only text is measured"),
            (8, "max_tokens is not a whole number from 1"),
            (9, "no max_tokens; say max_tokens=N for lines without one"),
            (10, "temperature is not a number from 0"),
            (11, "seed is not a whole number"),
            (12, "timestamp is neither a number of seconds nor a date and time of ISO 8601"),
            (13, "tools is not a list of objects"),
            (14, "body is a text, not an object"),
            (15, "prompt is a number, not a text with anything in it"),
            (16, "neither messages nor prompt"),
        ]
        assert told(path) == "\n".join(
            [
                f"{path} has 15 lines that cannot be sent.",
                *(f"{path}:{number}: {reason}" for number, reason in reasons),
                (
                    "Nothing was booted. Correct or drop what is named; its words are not shown on "
                    "purpose."
                ),
            ]
        )

    @pytest.mark.parametrize(
        ("first", "second", "clock", "other"),
        [
            (3, "2026-01-01T00:00:01Z", "date and time with its zone", "number of seconds"),
            (
                "2026-01-01T00:00:00",
                "2026-01-01T00:00:01Z",
                "date and time with its zone",
                "date and time of no zone",
            ),
            (1767225600000, 3, "number of seconds", "number of milliseconds since 1970"),
        ],
    )
    def test_times_of_two_clocks_are_wrong(
        self, write: Write, first: object, second: object, clock: str, other: str
    ) -> None:
        path = write(chat(timestamp=first), chat(timestamp=second), chat(timestamp=second))
        said = f"{path}:2: timestamp is a {clock}, in line 1 it is a {other}"
        assert f"has 1 line that cannot be sent.\n{said}" in told(path)

    def test_milliseconds_since_1970_are_known_by_their_size(self, write: Write) -> None:
        path = write(chat(timestamp=1767225600000), chat(timestamp=1767225605000))
        assert Traffic.from_jsonl(path).arrivals_s == (0.0, 5.0)

    @pytest.mark.parametrize("field", ["timestamp", "temperature"])
    def test_a_number_too_large_for_any_clock_is_wrong(self, write: Write, field: str) -> None:
        path = write(chat() | {field: 10**400})
        assert f"{path}:1: {field} is n" in told(path)

    def test_a_mark_of_the_byte_order_is_no_part_of_the_first_line(self, write: Write) -> None:
        path = write(chat())
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
        assert len(Traffic.from_jsonl(path).items) == 1

    @pytest.mark.parametrize("fields", [{"n": None}, {"n": 1}, {"best_of": 1}])
    def test_one_answer_may_be_asked_for(self, write: Write, fields: dict[str, object]) -> None:
        assert len(Traffic.from_jsonl(write(chat() | fields)).items) == 1

    @pytest.mark.parametrize("field", ["n", "best_of"])
    @pytest.mark.parametrize("value", [2, 0, [], "1"])
    def test_several_answers_may_not(self, write: Write, field: str, value: object) -> None:
        assert f"{field} asks for several answers" in told(write(chat() | {field: value}))

    def test_a_line_without_a_time_among_others_is_wrong(self, write: Write) -> None:
        path = write(chat(timestamp=1), chat(), chat(timestamp=2))
        assert f"{path}:2: no timestamp, which other lines have" in told(path)

    def test_lines_without_a_length_take_the_one_that_is_given(self, write: Write) -> None:
        (request,) = Traffic.from_jsonl(write(chat(max_tokens=None)), max_tokens=5).items
        assert request.max_tokens == 5

    def test_a_file_that_is_not_there_is_named(self, tmp_path: Path) -> None:
        path = tmp_path / "gone.jsonl"
        assert told(path) == (
            f"The traffic in {path} cannot be read.\n"
            "FileNotFoundError: No such file or directory.\n"
            "Nothing was booted. Name a file that is there."
        )

    def test_a_file_with_nothing_in_it_is_refused(self, write: Write) -> None:
        assert "holds no request" in told(write("", ""))

    @given(data=st.binary(max_size=200))
    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
    def test_any_bytes_are_read_or_refused(self, tmp_path: Path, data: bytes) -> None:
        path = tmp_path / "any.jsonl"
        path.write_bytes(data)
        with pytest.raises(UsageError):
            Traffic.from_jsonl(path)

    @given(
        line=st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.just(SECRET),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(
                    st.sampled_from(
                        [
                            "messages",
                            "prompt",
                            "role",
                            "content",
                            "tools",
                            "seed",
                            "n",
                            "body",
                            "max_tokens",
                            "temperature",
                            "timestamp",
                            "type",
                            "text",
                        ]
                    ),
                    inner,
                    max_size=5,
                )
            ),
            max_leaves=12,
        )
    )
    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
    def test_a_wrong_line_is_never_quoted(self, tmp_path: Path, line: object) -> None:
        path = tmp_path / "odd.jsonl"
        path.write_text(json.dumps(line), encoding="utf-8")
        try:
            shown = repr(Traffic.from_jsonl(path, max_tokens=1))
        except UsageError as error:
            shown = str(error)
        assert SECRET not in shown


class TestMooncakeTraces:
    def line(self, **fields: object) -> dict[str, Any]:
        return {
            "timestamp": 0,
            "input_length": 700,
            "output_length": 20,
            "hash_ids": [1, 2],
            **fields,
        }

    def test_lengths_and_times_are_the_traces(self, write: Write) -> None:
        path = write(self.line(), self.line(timestamp=1500))
        traffic = Traffic.from_mooncake(path)
        assert traffic.arrivals_s == (0.0, 1.5)
        assert [len(each.text or "") for each in traffic.items] == [700, 700]
        assert traffic.items[0].max_tokens == 20
        assert traffic.items[0].extra == {"ignore_eos": True}

    @given(shared=st.lists(st.integers(0, 99), min_size=1, max_size=4), shrink=st.integers(1, 64))
    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
    def test_requests_share_the_prefix_that_their_blocks_share(
        self, write: Write, shared: list[int], shrink: int
    ) -> None:
        whole = BLOCK_TOKENS * (len(shared) + 1)
        lines = [self.line(input_length=whole, hash_ids=[*shared, last]) for last in (100, 101)]
        one, two = Traffic.from_mooncake(write(*lines), shrink=shrink).items
        common = BLOCK_TOKENS // shrink * len(shared)
        assert (one.text or "")[:common] == (two.text or "")[:common]
        assert (one.text or "").isdigit()
        assert len(one.text or "") <= whole // shrink

    def test_wrong_lines_are_named(self, write: Write) -> None:
        path = write(
            self.line(hash_ids=[1]), self.line(hash_ids="x"), self.line(input_length=0), self.line()
        )
        with pytest.raises(UsageError) as caught:
            Traffic.from_mooncake(path)
        assert caught.value.evidence.splitlines() == [
            f"{path}:1: hash_ids has 1 blocks; 700 tokens are 2 of 512",
            f"{path}:2: hash_ids is not a list of whole numbers",
            f"{path}:3: input_length is not a whole number from 1",
        ]

    def test_a_trace_is_not_shrunk_to_nothing(self, write: Write) -> None:
        with pytest.raises(UsageError, match="A trace cannot be shrunk by 0"):
            Traffic.from_mooncake(write(self.line()), shrink=0)


class TestSharedConversations:
    def test_each_turn_of_a_person_is_a_request_with_all_that_was_said(self, write: Write) -> None:
        speakers = ("gpt", "system", "human", "gpt", "human", "gpt")
        said = [{"from": who, "value": str(n)} for n, who in enumerate(speakers)]
        traffic = Traffic.from_sharegpt(write([{"conversations": said}], name="chats.json"))
        heard = [[m["content"] for m in each.messages] for each in traffic.items]
        assert heard == [["1", "2"], ["1", "2", "3", "4"]]
        assert [m["role"] for m in traffic.items[1].messages] == [
            "system",
            "user",
            "assistant",
            "user",
        ]
        assert traffic.arrivals_s is None

    def test_wrong_conversations_are_named_and_not_quoted(self, write: Write) -> None:
        wrong = [
            SECRET,
            {"conversations": [{"from": "gpt", "value": SECRET}]},
            {"conversations": [{"from": SECRET, "value": SECRET}]},
            {"conversations": [{"from": "human", "value": 3}]},
        ]
        path = write(wrong, name="chats.json")
        with pytest.raises(UsageError) as caught:
            Traffic.from_sharegpt(path)
        assert caught.value.evidence.splitlines() == [
            f"{path}:1:2: conversation 1: no list called conversations",
            f"{path}:1:29: conversation 2: nobody asks anything in it",
            f"{path}:1:103: conversation 3: conversations[0] is from neither human, gpt nor system",
            f"{path}:1:197: conversation 4: conversations[0] is not an object with a value",
        ]
        assert caught.value.what == f"{path} has 4 conversations that cannot be sent."

    def test_a_wrong_conversation_is_named_by_the_line_that_it_begins_in(
        self, write: Write
    ) -> None:
        sound = {"conversations": [{"from": "human", "value": 'a\nb [ " ] {'}]}
        text = json.dumps([sound, {"id": 7}, sound, [[]]], indent=2)
        path = write(text, name="chats.json")
        with pytest.raises(UsageError) as caught:
            Traffic.from_sharegpt(path)
        begins = [n for n, line in enumerate(text.splitlines(), 1) if line in {"  {", "  ["}]
        assert caught.value.evidence.splitlines() == [
            f"{path}:{begins[1]}:3: conversation 2: no list called conversations",
            f"{path}:{begins[3]}:3: conversation 4: no list called conversations",
        ]

    @given(
        entries=st.lists(
            st.recursive(
                st.none()
                | st.booleans()
                | st.integers()
                | st.floats(allow_nan=False, allow_infinity=False)
                | st.text(),
                lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
                max_leaves=5,
            ),
            min_size=1,
        ),
        indent=st.sampled_from([None, 0, 2]),
    )
    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
    def test_every_wrong_entry_is_where_it_is_said_to_be(
        self, tmp_path: Path, entries: list[object], indent: int | None
    ) -> None:
        path = tmp_path / "chats.json"
        text = json.dumps(entries, indent=indent, allow_nan=False, ensure_ascii=False)
        path.write_text(text, encoding="utf-8", newline="")
        with pytest.raises(UsageError) as caught:
            Traffic.from_sharegpt(path)
        lines = text.split("\n")
        named = caught.value.evidence.splitlines()
        assert len(named) == len(entries)
        for each, entry in zip(named, entries, strict=True):
            line, column = map(int, each.removeprefix(f"{path}:").split(":")[:2])
            assert lines[line - 1][column - 1] == json.dumps(entry, ensure_ascii=False)[0]

    def test_what_is_no_list_is_refused(self, write: Write) -> None:
        with pytest.raises(UsageError, match="no list of conversations"):
            Traffic.from_sharegpt(write({}, name="chats.json"))


class TestSecrecy:
    def test_nothing_of_the_words_stands_in_a_record_of_it(self, write: Write) -> None:
        (request,) = Traffic.from_jsonl(write(chat())).items
        with ScriptedServer() as server, Client(server.url, model=server.model) as client:
            made = client.send(request, request_id="r")
        assert made.completed
        assert made.prompt_digest is not None
        assert SECRET not in msgspec.json.encode(made).decode()

    def test_a_refusal_that_quotes_them_is_kept_without_them(self, write: Write) -> None:
        (request,) = Traffic.from_jsonl(write(chat())).items
        message = f"{SECRET} --not-a-flag needs --enable-auto-tool-choice and --tool-call-parser"
        with (
            ScriptedServer([refusal(400, message)]) as server,
            Client(server.url, model="m") as client,
        ):
            made = client.send(request, request_id="r")
        assert made.failure is not None
        assert made.failure.detail == (
            "HTTP 400: words withheld; it names --enable-auto-tool-choice, --tool-call-parser"
        )

    def test_a_server_s_timing_fields_are_kept_without_their_texts(self, write: Write) -> None:
        (request,) = Traffic.from_jsonl(write(chat())).items
        timings = {"prompt_n": 3, "prompt": SECRET, "top": [{SECRET: 1}], "more": {SECRET: 2}}
        chunk = {"choices": [], "timings": timings, "meta_info": {"stop": SECRET}}
        ends = {"choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": "stop"}]}
        with (
            ScriptedServer([stream(event(ends), event(chunk), done())]) as server,
            Client(server.url, model="m") as client,
        ):
            made = client.send(request, request_id="r")
        assert made.server_timings == {"timings": {"prompt_n": 3}}
        assert SECRET not in msgspec.json.encode(made).decode()

    def test_no_repr_of_it_shows_them(self, write: Write) -> None:
        traffic = Traffic.from_jsonl(write(chat()))
        assert repr(traffic) == "Traffic(name='log', 1 requests)"
        assert repr(traffic.items[0]) == "PlannedRequest(prompt='log', private, max_tokens=8)"
        assert SECRET not in repr(traffic.cold(0, "[request 1]"))
