from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmperf.server.probe import (
    Answer,
    Generation,
    ask,
    cache_size,
    chat,
    generation,
    models,
    what_is_wrong,
)


def made(text: str, ids: list[int] | None = None, tokens: int | None = None) -> Generation:
    count = tokens if tokens is not None or ids is None else len(ids)
    return Generation(
        tokens=count, token_ids=None if ids is None else tuple(ids), text=text, error=None
    )


SENTENCE = "A lamp lights a room at night, so that people can see."


@pytest.mark.parametrize(
    "sane",
    [
        made(SENTENCE),
        made(SENTENCE, list(range(13))),
        made("Light.", [5, 6]),
        made("", list(range(9))),  # a tool call that the parser still holds back
        made("get_time{}", tokens=9),
        made("一盏灯照亮房间", tokens=7),
        made("no no yes", [4, 4, 5]),
    ],
)
def test_a_working_engine_passes(sane: Generation) -> None:
    assert what_is_wrong(sane) is None


@pytest.mark.parametrize(
    ("garbage", "why"),
    [
        (made("!" * 32, [0] * 32), "its text is one repeated character, '!'"),
        (made("! ! ! ! ! ! ! ! !"), "its text is one repeated character, '!'"),
        (made("", [0] * 32), "its 32 tokens are only 1 distinct ones"),
        (made("the the the the the the the the"), "its 8 words are only 1 distinct ones"),
        (made("ab" * 16, [1, 2] * 16), "its 32 tokens are only 2 distinct ones"),
        (made("ababababab"), "its 10 words are only 2 distinct ones"),
        (made("x", [7]), "it generated 1 token, fewer than 2"),
        (made("", [], 0), "it generated 0 tokens, fewer than 2"),
        (made(""), "it generated nothing"),
        (made(" \n "), "it generated nothing"),
    ],
)
def test_garbage_is_told_whatever_its_pattern(garbage: Generation, why: str) -> None:
    assert what_is_wrong(garbage) == why


def test_an_error_inside_a_stream_of_200_is_an_error() -> None:
    body = 'data: {"error": {"message": "EngineCore died"}}\n\ndata: [DONE]\n\n'
    assert what_is_wrong(generation(body)) == (
        'the stream carried an error: {"message": "EngineCore died"}'
    )


@given(st.text(min_size=1, max_size=1).filter(str.strip), st.integers(4, 64))
def test_one_character_for_ever_is_never_sane(character: str, count: int) -> None:
    assert what_is_wrong(made(character * count, tokens=count)) is not None


def test_reasoning_tool_calls_and_content_are_all_text_and_usage_counts() -> None:
    deltas: list[dict[str, object]] = [
        {"role": "assistant", "content": ""},
        {"reasoning": "hm "},
        {"reasoning_content": "so "},
        {"content": "yes"},
        {"tool_calls": [{"function": {"name": "get_time", "arguments": "{}"}}]},
    ]
    events: list[dict[str, object]] = [{"choices": [{"delta": each}]} for each in deltas]
    events += [{"choices": [], "usage": {"completion_tokens": 7}}, {"usage": None, "choices": []}]
    body = "".join(f"data: {json.dumps(each)}\r\n\r\n" for each in events)
    found = generation(f": ping\n\n{body}data: [DONE]\n\n")
    assert found.text == "hm so yesget_time{}"
    assert found.tokens == 7
    assert found.token_ids is None


def test_tokens_are_counted_by_ids_where_there_is_no_usage() -> None:
    body = 'data:{"choices":[{"delta":{},"token_ids":[1,2,3]}]}\n\n'
    assert generation(body) == Generation(tokens=3, token_ids=(1, 2, 3), text="", error=None)


def test_the_probe_is_of_the_kind_that_is_benchmarked() -> None:
    request = chat("gemma-0", tools=True)
    assert request["stream"]
    assert request["tools"]
    assert request["tool_choice"] == "auto"
    assert request["return_token_ids"]
    assert "tools" not in chat("gemma-0", tools=False)


INFO = "vllm:cache_config_info"


@pytest.mark.parametrize(
    ("page", "size"),
    [
        (
            f'{INFO}{{block_size="32",kv_cache_size_tokens="161029",num_gpu_blocks="65536"}} 1.0',
            (32, 5032),
        ),
        (f'# HELP {INFO} x\n{INFO}{{block_size="16",num_gpu_blocks="100"}} 1.0', (16, 100)),
        (f'{INFO}{{block_size="None",num_gpu_blocks="None"}} 1.0', (None, None)),
        ("", (None, None)),
    ],
)
def test_cache_size_is_what_the_server_can_really_hold(
    page: str, size: tuple[int | None, int | None]
) -> None:
    assert cache_size(page) == size


@pytest.mark.parametrize(
    "body", ["", "null", "[]", '{"data": null}', '{"data": [1, {"id": 2}, {}]}', "<html>"]
)
def test_what_lists_no_models_lists_none(body: str) -> None:
    assert models(Answer(status=200, body=body)) == []


def test_nobody_there_is_an_answer_without_status() -> None:
    found = ask("http://127.0.0.1:9", "/v1/models", timeout_s=1)
    assert found.status is None
    assert found.body == "ConnectionRefusedError: [Errno 111] Connection refused"
    assert ask("http://127.0.0.1:99999", "/", timeout_s=1).status is None
