"""What only an engine's environment can show: its own template, its logits, its trainer."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from pytest_llmperf.miniature.checkpoint import Checkpoint, materialise
from pytest_llmperf.miniature.corpus import Chat, middle_chat, router_chat, short_chat
from pytest_llmperf.miniature.digests import check_digests
from pytest_llmperf.miniature.transcript import render

pytestmark = pytest.mark.engine

SCRIPTS = Path(__file__).with_name("in_engine")
ROOT = Path(__file__).parents[2]


def run(python: str, *arguments: str | Path, words: str = "") -> str:
    """Run the engine's Python on *arguments* with *words* on its input; return its output."""
    done = subprocess.run(
        [python, *map(str, arguments)],
        input=words,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return materialise(cache_dir=tmp_path_factory.mktemp("cache"), progress=print)


def cases(chat: Chat) -> Iterator[dict[str, Any]]:
    """Every beginning of a conversation, with and without the invitation to speak."""
    for length in range(1, len(chat.messages) + 1):
        for invited in (False, True):
            yield {
                "messages": chat.messages[:length],
                "tools": chat.tools,
                "add_generation_prompt": invited,
            }


@pytest.fixture(scope="module")
def rendered(engine_python: str, checkpoint: Checkpoint) -> list[tuple[dict[str, Any], Any]]:
    """Cases of a dozen conversations, each with what the engine's tokenizer makes of it."""
    r = Random(11)
    chats = [draw(r) for draw in (short_chat, middle_chat, router_chat) for _ in range(4)]
    asked = [case for chat in chats for case in cases(chat)]
    out = run(
        engine_python, SCRIPTS / "render_chats.py", checkpoint.target, words=json.dumps(asked)
    )
    return list(zip(asked, json.loads(out), strict=True))


class TestTheEnginesTemplate:
    def test_writes_what_its_twin_writes(self, rendered: list[tuple[dict[str, Any], Any]]) -> None:
        for case, result in rendered:
            assert result["text"] == render(**case)

    def test_makes_every_conversation_a_token_prefix_of_its_continuation(
        self, rendered: list[tuple[dict[str, Any], Any]]
    ) -> None:
        before: list[int] = []
        for case, result in rendered:
            if case["add_generation_prompt"]:
                continue
            if len(case["messages"]) > 1:
                assert result["ids"][: len(before)] == before
            before = result["ids"]

    def test_loses_no_character_on_the_way_to_tokens_and_back(
        self, rendered: list[tuple[dict[str, Any], Any]]
    ) -> None:
        assert all(result["text"] == result["again"] for _, result in rendered)


@pytest.mark.parametrize("requests", [5, 7, 9])
def test_a_router_conversation_of_ten_to_eighteen_turns_has_two_to_three_thousand_tokens(
    engine_python: str, checkpoint: Checkpoint, requests: int
) -> None:
    chats = [router_chat(Random(seed), requests) for seed in range(12)]
    asked = [list(cases(chat))[-1] for chat in chats]
    out = run(
        engine_python, SCRIPTS / "render_chats.py", checkpoint.target, words=json.dumps(asked)
    )
    assert all(2000 <= len(result["ids"]) <= 3000 for result in json.loads(out))


@pytest.mark.parametrize("ballast", [{"layers": 3}, {"mlp": 4096}])
def test_ballast_leaves_every_logit_as_it_was(
    engine_python: str, checkpoint: Checkpoint, tmp_path: Path, ballast: dict[str, int]
) -> None:
    heavy = materialise(cache_dir=tmp_path, progress=print, **ballast)  # type: ignore[arg-type]
    text = router_chat(Random(1), 6).text()
    script = SCRIPTS / "compare_logits.py"
    answer = run(engine_python, script, checkpoint.target, heavy.target, words=text)
    difference, agreed, _ = answer.split(" ", 2)
    assert float(difference) == 0
    assert agreed == "True"


def test_the_trainer_writes_the_layout_of_the_shipped_weights(
    engine_python: str, tmp_path: Path
) -> None:
    out = run(
        engine_python, "-m", "pytest_llmperf.miniature.train", tmp_path, "--fraction", "0.001"
    )
    assert "target: step 4 of 4" in out
    check_digests(tmp_path)
    built = materialise(weights=tmp_path, cache_dir=tmp_path / "cache", progress=print)
    assert (built.drafter_weak / "tokenizer.json").is_file()
