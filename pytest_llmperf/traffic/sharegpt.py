"""Shared conversations: a JSON list, of which each turn of a person is one request.

Files of one request a line are in ``lines``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from pytest_llmperf.errors import UsageError
from pytest_llmperf.planned import PlannedRequest
from pytest_llmperf.traffic.lines import NEXT, Came, Wrong, read_bytes, refuse

_ROLES = {
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "bing": "assistant",
    "assistant": "assistant",
    "system": "system",
}
"""Who speaks in shared conversations, by the names that their tools give."""

_BETWEEN = re.compile(r"[\s,]*")


def entries(file: Path, name: str, max_tokens: int) -> list[Came]:
    """The requests of a file of conversations, in its order.

    :raises UsageError: it is no list, or an entry of it is wrong; all that are wrong are named by
        where they begin.
    """
    content = read_bytes(file)
    try:
        whole = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        whole = None
    if not isinstance(whole, list):
        raise UsageError(f"{file} is no list of conversations.", "It is no JSON list.", NEXT)
    found: list[Came] = []
    wrong: dict[int, str] = {}
    for number, entry in enumerate(whole, start=1):
        try:
            turns = _turns(entry)
        except Wrong as error:
            wrong[number] = str(error)
            continue
        found += [
            Came(
                request=PlannedRequest(
                    prompt=name, messages=each, max_tokens=max_tokens, private=True
                )
            )
            for each in turns
        ]
    if wrong:
        places = _places(content.decode())
        refuse(
            file,
            [f"{file}:{places[n - 1]}: conversation {n}: {why}" for n, why in wrong.items()],
            what="conversation",
        )
    return found


def _places(text: str) -> list[str]:
    """Where each entry of a JSON list begins, as editors count: ``line:column``, both from 1."""
    decoder = json.JSONDecoder(parse_int=float, strict=False)
    places: list[str] = []
    line, seen, at = 1, 0, _past_gap(text, text.index("[") + 1)
    while text[at] != "]":
        line, seen = line + text.count("\n", seen, at), at
        column = at - text.rfind("\n", 0, at)
        places.append(f"{line}:{column}")
        _, end = decoder.raw_decode(text, at)
        at = _past_gap(text, end)
    return places


def _past_gap(text: str, at: int) -> int:
    gap = _BETWEEN.match(text, at)
    return at if gap is None else gap.end()


def _turns(entry: object) -> Iterator[tuple[dict[str, Any], ...]]:
    """For each turn of a person, all that was said up to it."""
    said = entry.get("conversations") if isinstance(entry, dict) else None
    if not isinstance(said, list):
        raise Wrong("no list called conversations")
    messages = [_said(number, each) for number, each in enumerate(said)]
    first = next((at for at, each in enumerate(messages) if each["role"] == "user"), None)
    if first is None:
        raise Wrong("nobody asks anything in it")
    system = [each for each in messages[:first] if each["role"] == "system"]
    heard = system + messages[first:]
    return (tuple(heard[: at + 1]) for at, each in enumerate(heard) if each["role"] == "user")


def _said(number: int, said: object) -> dict[str, str]:
    where = f"conversations[{number}]"
    if not isinstance(said, dict) or not isinstance(said.get("value"), str):
        raise Wrong(f"{where} is not an object with a value")
    role = _ROLES.get(said["from"]) if isinstance(said.get("from"), str) else None
    if role is None:
        raise Wrong(f"{where} is from neither human, gpt nor system")
    return {"role": role, "content": said["value"]}
