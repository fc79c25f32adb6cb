"""What the miniature does when vLLM serves it: it calls tools, and its drafter is worth having."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest

from pytest_llmperf.miniature.checkpoint import Checkpoint, materialise
from pytest_llmperf.miniature.corpus import exchange
from pytest_llmperf.miniature.household import (
    REQUESTS,
    ROUTER_SYSTEM_PROMPT,
    TOOLS,
    ToolRequest,
    request_nonce,
    tool_request,
)
from pytest_llmperf.miniature.transcript import render

pytestmark = pytest.mark.engine

ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "2",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_NO_USAGE_STATS": "1",
}
FLAGS = [
    "--served-model-name",
    "miniature",
    "--dtype",
    "float32",
    "--enforce-eager",
    "--block-size",
    "32",
    "--max-model-len",
    "4096",
    "--enable-prompt-tokens-details",
    "--enable-auto-tool-choice",
    "--tool-call-parser",
    "gemma4",
    "--prefix-cache-retention-interval",
    "32",
    "--distributed-executor-backend",
    "uni",
]


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def command(python: str, checkpoint: Checkpoint, port: int) -> list[str]:
    speculation = {
        "method": "mtp",
        "model": str(checkpoint.drafter),
        "num_speculative_tokens": 3,
    }
    module = ["-m", "vllm.entrypoints.openai.api_server"]
    place = ["--model", str(checkpoint.target), "--port", str(port)]
    return [python, *module, *place, *FLAGS, "--speculative-config", json.dumps(speculation)]


def wait_until_ready(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        assert process.poll() is None, log.read_text()[-3000:]
        try:
            if httpx.get(f"{url}/health").status_code == httpx.codes.OK:
                return
        except httpx.TransportError:
            time.sleep(0.5)
    pytest.fail(log.read_text()[-3000:])


@pytest.fixture(scope="module")
def served(engine_python: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A client of the miniature with 16 dead layers and its drafter."""
    folder = tmp_path_factory.mktemp("served")
    checkpoint = materialise(layers=16, cache_dir=folder, progress=print)
    log, url = folder / "log", f"http://127.0.0.1:{(port := free_port())}"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command(engine_python, checkpoint, port),
            env=os.environ | ENVIRONMENT,
            stdout=output,
            stderr=output,
        )
        try:
            wait_until_ready(process, url, log)
            with httpx.Client(base_url=url, timeout=300) as client:
                yield client
        finally:
            process.terminate()
            process.wait(timeout=60)


def conversation(kind: str, seed: int) -> tuple[list[dict[str, Any]], Any]:
    """Return a cold router conversation of a few turns that ends in a request of one kind."""
    r = Random(seed)
    nonce = request_nonce(r)
    prompt = f"{nonce}\n{ROUTER_SYSTEM_PROMPT}"
    messages: list[dict[str, Any]] = [{"role": "system", "content": prompt}]
    for number in range(4):
        messages += exchange(tool_request(r), f"call{number}")
    for message in messages:
        for call in message.get("tool_calls", ()):
            call["function"]["arguments"] = json.dumps(call["function"]["arguments"])
    request = REQUESTS[kind](r)
    return [*messages, {"role": "user", "content": request.text}], request


def ask(client: httpx.Client, messages: list[dict[str, Any]]) -> dict[str, Any]:
    body = {"messages": messages, "tools": TOOLS, "temperature": 0.0, "max_tokens": 160}
    response = client.post("/v1/chat/completions", json={"model": "miniature", **body})
    assert response.status_code == httpx.codes.OK, response.text
    (choice,) = response.json()["choices"]
    return dict(choice)


def spoken_drafts(client: httpx.Client) -> tuple[float, float]:
    """Return how many tokens were drafted and how many of them accepted, since boot."""
    found = {}
    for line in client.get("/metrics").text.splitlines():
        name, _, value = line.rpartition(" ")
        found[name.partition("{")[0]] = value
    drafted = found["vllm:spec_decode_num_draft_tokens_total"]
    return float(drafted), float(found["vllm:spec_decode_num_accepted_tokens_total"])


def acceptance(client: httpx.Client, kind: str, requests: int = 6) -> float:
    drafted, accepted = spoken_drafts(client)
    for seed in range(requests):
        ask(client, conversation(kind, 500 + seed)[0])
    drafted_after, accepted_after = spoken_drafts(client)
    return (accepted_after - accepted) / (drafted_after - drafted)


def test_the_engine_reads_exactly_what_the_transcript_says(served: httpx.Client) -> None:
    messages, _ = conversation("tool", 1)
    body = {"model": "miniature", "messages": messages, "tools": TOOLS}
    ids = served.post("/tokenize", json=body).raise_for_status().json()["tokens"]
    answer = served.post("/detokenize", json={"model": "miniature", "tokens": ids})
    for message in messages:
        for call in message.get("tool_calls", ()):
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    assert answer.json()["prompt"] == render(messages, TOOLS, add_generation_prompt=True)


def test_a_router_prompt_is_answered_with_the_right_tool_and_its_arguments(
    served: httpx.Client,
) -> None:
    right = 0
    for seed in range(12):
        messages, request = conversation("tool", seed)
        choice = ask(served, messages)
        assert choice["finish_reason"] == "tool_calls"
        (call,) = choice["message"]["tool_calls"]
        assert isinstance(request, ToolRequest)
        arguments = json.loads(call["function"]["arguments"])
        assert call["function"]["name"] == request.name
        assert set(arguments) == set(request.arguments)
        right += arguments == request.arguments
    assert right >= 6


def test_predictable_content_is_accepted_far_more_often_than_prose(served: httpx.Client) -> None:
    rates = {kind: acceptance(served, kind) for kind in REQUESTS}
    print(rates)  # noqa: T201  # worth reading with -s
    assert min(rates["tool"], rates["json"], rates["code"]) > 0.75
    assert rates["prose"] < min(rates["tool"], rates["json"], rates["code"]) - 0.1
