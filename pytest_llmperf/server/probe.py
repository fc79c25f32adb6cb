"""Questions to a server over HTTP: which models, a short generation, its version and capabilities.

When to ask, and what an unready answer means for a boot, is in ``readiness`` and ``launch``. Only
the standard library is used; the client that measures is another room.
"""

from __future__ import annotations

import http.client
import json
import re
from typing import Any
from urllib.parse import urlsplit

import msgspec

from pytest_llmperf.record import Facts

_QUESTION = "In one sentence: what is a lamp good for?"
_TOOL = {
    "type": "function",
    "function": {
        "name": "get_time",
        "description": "Say what time it is.",
        "parameters": {"type": "object", "properties": {}},
    },
}
_MAX_TOKENS = 32
_LONG_ENOUGH_TO_JUDGE = 8
_FEWEST_DISTINCT = 4
_OK = 200
_DRAFTS = "vllm:spec_decode_num_drafts"
"""A family that only a server with a drafter has on its metrics page, from its start on."""

_MARKUP = re.compile(r"<style.*?</style>|<script.*?</script>|<[^>]*>", re.DOTALL | re.IGNORECASE)
_SAMPLE = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What came back; ``status`` is ``None`` when nothing did, and ``body`` says why."""

    status: int | None
    body: str

    def json(self) -> Any:  # noqa: ANN401 - JSON is what it is
        """The body as JSON; ``None`` where it is none."""
        try:
            return json.loads(self.body)
        except ValueError:
            return None

    def said(self, most: int) -> str:
        """The body for a message: its words in one line, without HTML, ``most`` characters."""
        is_page = self.body.lstrip()[:1] == "<"
        words = " ".join((_MARKUP.sub(" ", self.body) if is_page else self.body).split())
        return (words if len(words) <= most else f"{words[:most]}...") or "nothing"


class Generation(msgspec.Struct, frozen=True, kw_only=True):
    """What a short chat brought."""

    tokens: int | None
    """By the server's usage, else by its token ids, else unknown."""
    token_ids: tuple[int, ...] | None
    text: str
    """All visible text: content, reasoning, and tool calls with their arguments."""
    error: str | None
    """An error event inside the stream."""


def ask(url: str, path: str, *, payload: object = None, timeout_s: float) -> Answer:
    """One request on a connection of its own, past any proxy of the environment."""
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    try:
        connection = kind(parts.hostname or "", parts.port, timeout=timeout_s)
    except (OSError, ValueError, http.client.HTTPException) as error:
        return Answer(status=None, body=str(error))
    try:
        body = None if payload is None else json.dumps(payload)
        headers = {"Content-Type": "application/json", "Connection": "close"}
        method = "GET" if payload is None else "POST"
        connection.request(method, parts.path.rstrip("/") + path, body, headers)
        response = connection.getresponse()
        text = response.read().decode(errors="replace")
        return Answer(status=response.status, body=text)
    except (OSError, ValueError, http.client.HTTPException) as error:
        return Answer(status=None, body=f"{type(error).__name__}: {error}")
    finally:
        connection.close()


def models(answer: Answer) -> list[dict[str, Any]]:
    """The entries of ``/v1/models``; none where the answer is not such a list."""
    page = answer.json()
    data = page.get("data") if isinstance(page, dict) else None
    entries = data if isinstance(data, list) else []
    return [each for each in entries if isinstance(each, dict) and isinstance(each.get("id"), str)]


def chat(model: str, *, tools: bool) -> dict[str, Any]:
    """A chat of the kind the benchmarks send: streaming, with tools and token ids."""
    request: dict[str, Any] = {
        "model": model,
        "messages": [{"role": "user", "content": _QUESTION}],
        "max_tokens": _MAX_TOKENS,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_token_ids": True,
    }
    return request | ({"tools": [_TOOL], "tool_choice": "auto"} if tools else {})


def generation(body: str) -> Generation:
    """What a whole event stream brought."""
    text: list[str] = []
    token_ids: list[int] | None = None
    tokens: int | None = None
    error: str | None = None
    for event in _events(body):
        if event.get("error"):
            error = json.dumps(event["error"])
        tokens = (event.get("usage") or {}).get("completion_tokens", tokens)
        for choice in event.get("choices") or []:
            text += _texts(choice.get("delta") or {})
            if choice.get("token_ids") is not None:
                token_ids = (token_ids or []) + choice["token_ids"]
    if tokens is None and token_ids is not None:
        tokens = len(token_ids)
    ids = None if token_ids is None else tuple(token_ids)
    return Generation(tokens=tokens, token_ids=ids, text="".join(text), error=error)


def _events(body: str) -> list[dict[str, Any]]:
    events = []
    for line in re.split(r"\r\n|\n|\r", body):
        data = line.removeprefix("data:").strip() if line.startswith("data:") else ""
        try:
            event = json.loads(data) if data and data != "[DONE]" else None
        except ValueError:
            continue
        if isinstance(event, dict):
            events.append(event)
    return events


def _texts(delta: dict[str, Any]) -> list[str]:
    found = [delta.get("reasoning") or delta.get("reasoning_content"), delta.get("content")]
    for call in delta.get("tool_calls") or []:
        function = call.get("function") or {}
        found += [function.get("name"), function.get("arguments")]
    return [each for each in found if isinstance(each, str)]


def what_is_wrong(made: Generation) -> str | None:
    """Why a generation does not show a working engine; ``None`` when it does.

    Garbage can be quick: a broken kernel gives one character, or a few tokens, for ever.
    """
    if made.error is not None:
        return f"the stream carried an error: {made.error}"
    if made.tokens is not None and made.tokens < 2:  # noqa: PLR2004 - one token may be the prefill's
        return f"it generated {made.tokens} token{'s' * (made.tokens != 1)}, fewer than 2"
    if made.tokens is None and not made.text.strip():
        return "it generated nothing"
    visible = "".join(made.text.split())
    if len(visible) >= _FEWEST_DISTINCT and len(set(visible)) == 1:
        return f"its text is one repeated character, {visible[0]!r}"
    units = made.token_ids if made.token_ids is not None else tuple(_words(made.text))
    if len(units) >= _LONG_ENOUGH_TO_JUDGE and len(set(units)) < _FEWEST_DISTINCT:
        kind = "token" if made.token_ids is not None else "word"
        return f"its {len(units)} {kind}s are only {len(set(units))} distinct ones"
    return None


def _words(text: str) -> list[str]:
    """Words, or characters where the text has no spaces to part them."""
    words = text.split()
    return words if len(words) >= _LONG_ENOUGH_TO_JUDGE else list("".join(words))


def facts(
    url: str,
    model: dict[str, Any],
    made: Generation,
    *,
    timeout_s: float,
    metrics: str | None = None,
) -> Facts:
    """What a ready server says of itself; what it does not say stays ``None``.

    :param metrics: the address of its metrics page; ``None``: ``/metrics`` of its own.
    """
    version = ask(url, "/version", timeout_s=timeout_s).json()
    page = ask(metrics or f"{url}/metrics", "", timeout_s=timeout_s)
    text = page.body if page.status == _OK else ""
    tokenized = ask(
        url, "/tokenize", payload={"model": model["id"], "prompt": "a"}, timeout_s=timeout_s
    )
    block_size, blocks = cache_size(text)
    counts = any(line and not line.startswith("#") for line in text.splitlines())
    return Facts(
        version=version.get("version") if isinstance(version, dict) else None,
        block_size=block_size,
        cache_blocks=blocks,
        max_model_len=model.get("max_model_len"),
        metrics=counts,
        tokenize=tokenized.status == _OK and isinstance(tokenized.json(), dict),
        token_ids=made.token_ids is not None,
        speculates=_DRAFTS in text if counts else None,
    )


def cache_size(page: str) -> tuple[int | None, int | None]:
    """Block size and number of blocks of the KV cache, from the metrics page's info line.

    Where the server states a capacity in tokens, blocks are that over the block size: with
    sliding-window layers a token takes several of the blocks that ``num_gpu_blocks`` counts.
    """
    line = next((each for each in page.splitlines() if each.startswith("vllm:cache_config_")), "")
    labels = dict(_SAMPLE.findall(line))
    block_size = _whole(labels.get("block_size"))
    capacity = _whole(labels.get("kv_cache_size_tokens"))
    if block_size and capacity:
        return block_size, capacity // block_size
    return block_size, _whole(labels.get("num_gpu_blocks"))


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdigit() else None
