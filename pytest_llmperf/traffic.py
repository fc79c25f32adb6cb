"""Your own traffic as a workload: requests and arrival times out of files; their words stay there.

JSON Lines of chat requests, traces of lengths and block ids, and shared conversations. Sending them
at their times is in ``schedule``; what is sent of one request is in ``planned``.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Self

import msgspec

from pytest_llmperf.errors import UsageError
from pytest_llmperf.planned import RESERVED, PlannedRequest
from pytest_llmperf.workload import Prompts

BLOCK_TOKENS = 512
"""Tokens that one of a trace's ``hash_ids`` stands for."""

_NOT_SENT = RESERVED | {"max_completion_tokens", "user", "metadata", "store", "safety_identifier"}
"""Fields of a body that are read here, or that say who asked."""

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

_NEXT = "Nothing was booted. Correct or drop what is named; its words are not shown on purpose."


class Traffic(Prompts, frozen=True, kw_only=True):
    """Requests as they once came in; nothing of their words is shown or stored.

    A measurement keeps their lengths, digests and times. Make it with ``from_jsonl``,
    ``from_mooncake`` or ``from_sharegpt``.
    """

    arrivals_s: tuple[float, ...] | None = None
    """When each request came, in seconds after the first; ``None`` where the file has no times."""

    def __repr__(self) -> str:
        return f"Traffic(name={self.name!r}, {len(self.items)} requests)"

    @classmethod
    def from_jsonl(
        cls, path: str | Path, *, name: str | None = None, max_tokens: int | None = None
    ) -> Self:
        """Read one request a line: an OpenAI body, or ``{"timestamp": ..., "body": {...}}``.

        ``timestamp`` is in seconds, or a date and time of ISO 8601; either all lines have one or
        none. ``model``, ``stream`` and fields that say who asked are left out. Without a
        ``temperature`` 0 is sent, so that two runs ask the same.

        :param name: of the workload; the file's name by default.
        :param max_tokens: for lines that say none.
        :raises UsageError: a line is wrong; all that are wrong are named, and none is quoted.
        """
        file = Path(path)
        told = name or file.stem
        read = _Lines(file).read(lambda line: _logged(line, told, max_tokens))
        return cls._made(file, told, read)

    @classmethod
    def from_mooncake(cls, path: str | Path, *, name: str | None = None, shrink: int = 1) -> Self:
        """Read a trace: ``timestamp`` (ms), ``input_length``, ``output_length``, ``hash_ids``.

        Prompts are made up: a hash id always gives the same digits, so that requests share the
        prefixes that they shared. One digit is one token for tokenizers that split numbers, as
        Gemma's do. The answer's length is forced.

        :param shrink: divides every length, for an engine whose context is shorter.
        :raises UsageError: a line is wrong; all that are wrong are named.
        """
        if not 1 <= shrink <= BLOCK_TOKENS:
            raise UsageError(
                f"A trace cannot be shrunk by {shrink}.",
                f"A block of {BLOCK_TOKENS} tokens must keep one or more.",
                f"Give a whole number from 1 to {BLOCK_TOKENS}.",
            )
        file = Path(path)
        told = name or file.stem
        read = _Lines(file).read(lambda line: _traced(line, told, shrink))
        return cls._made(file, told, read)

    @classmethod
    def from_sharegpt(
        cls, path: str | Path, *, name: str | None = None, max_tokens: int = 128
    ) -> Self:
        """Read a JSON list of conversations; each turn of a person is one request.

        It carries all that was said before. What stands before a person's first word is left out,
        but for a system prompt.

        :raises UsageError: an entry is wrong; all that are wrong are named, and none is quoted.
        """
        file = Path(path)
        told = name or file.stem
        read = _entries(file, told, max_tokens)
        return cls._made(file, told, read)

    @classmethod
    def _made(cls, file: Path, name: str, read: list[_Came]) -> Self:
        if not read:
            raise UsageError(f"{file} holds no request.", "Every line of it is empty.", _NEXT)
        timed = [each for each in read if each.at_s is not None]
        arrivals = None
        if timed:
            read = sorted(read, key=lambda each: each.at_s or 0.0)
            first = read[0].at_s or 0.0
            arrivals = tuple((each.at_s or 0.0) - first for each in read)
        return cls(name=name, items=tuple(each.request for each in read), arrivals_s=arrivals)


class _Came(msgspec.Struct, frozen=True, kw_only=True):
    """One request and when it came, in seconds of the file's own clock."""

    request: PlannedRequest
    at_s: float | None = None


class _Wrong(Exception):
    """What is wrong with one line, in words that quote nothing of it."""


class _Lines:
    """A file of one JSON object a line."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self, make: Callable[[Mapping[str, Any]], _Came]) -> list[_Came]:
        """Make a request of every line.

        :raises UsageError: a line is wrong; all of them in one message.
        """
        found: list[_Came] = []
        wrong: list[str] = []
        untimed: list[int] = []
        for number, line in enumerate(_bytes(self._path).split(b"\n"), start=1):
            if not line.strip():
                continue
            try:
                found.append(make(_object(line)))
            except _Wrong as error:
                wrong.append(f"{self._path}:{number}: {error}")
                continue
            if found[-1].at_s is None:
                untimed.append(number)
        if 0 < len(untimed) < len(found):
            why = "no timestamp, which other lines have"
            wrong += [f"{self._path}:{each}: {why}" for each in untimed]
        _refuse(self._path, wrong)
        return found


def _refuse(path: Path, wrong: Sequence[str]) -> None:
    if wrong:
        count = f"{len(wrong)} line{'s' if len(wrong) > 1 else ''}"
        raise UsageError(f"{path} has {count} that cannot be sent.", "\n".join(wrong), _NEXT)


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"The traffic in {path} cannot be read.",
            f"{type(error).__name__}: {error.strerror}.",
            "Nothing was booted. Name a file that is there.",
        ) from error


def _object(line: bytes) -> Mapping[str, Any]:
    try:
        found = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise _Wrong("no JSON in UTF-8") from None
    if not isinstance(found, dict):
        raise _Wrong(f"a JSON {_kind(found)}, not an object")
    return found


def _kind(value: object) -> str:
    if value is None:
        return "null"
    names = {bool: "truth value", str: "text", int: "number", float: "number", list: "list"}
    return names.get(type(value), "object")


def _logged(line: Mapping[str, Any], name: str, max_tokens: int | None) -> _Came:
    body = line.get("body", line)
    if not isinstance(body, dict):
        raise _Wrong(f"body is a {_kind(body)}, not an object")
    stamp = line.get("timestamp")
    extra = {key: value for key, value in body.items() if key not in {*_NOT_SENT, "timestamp"}}
    if extra.get("n", 1) != 1:
        raise _Wrong("n asks for several answers; one request has one")
    request = PlannedRequest(
        prompt=name,
        **_asked(body),
        max_tokens=_length(body, max_tokens),
        temperature=_temperature(body),
        seed=_whole(body, "seed", None),
        extra=extra,
        private=True,
    )
    return _Came(request=request, at_s=None if stamp is None else _seconds(stamp))


def _asked(body: Mapping[str, Any]) -> dict[str, Any]:
    """The prompt's fields of a planned request."""
    if "messages" in body:
        tools = body.get("tools") or []
        if not isinstance(tools, list) or not all(isinstance(each, dict) for each in tools):
            raise _Wrong("tools is not a list of objects")
        return {"messages": tuple(_messages(body["messages"])), "tools": tuple(tools)}
    if "prompt" not in body:
        raise _Wrong("neither messages nor prompt")
    if not isinstance(body["prompt"], str) or not body["prompt"]:
        raise _Wrong(f"prompt is {_article(body['prompt'])}, not a text with anything in it")
    return {"endpoint": "completions", "text": body["prompt"]}


def _article(value: object) -> str:
    return "an empty text" if value == "" else f"a {_kind(value)}"


def _messages(found: object) -> Iterator[dict[str, Any]]:
    if not isinstance(found, list) or not found:
        raise _Wrong("messages is not a list with anything in it")
    for number, each in enumerate(found):
        where = f"messages[{number}]"
        if not isinstance(each, dict) or not isinstance(each.get("role"), str):
            raise _Wrong(f"{where} is not an object with a role")
        _check_content(where, each.get("content"))
        yield each


def _check_content(where: str, content: object) -> None:
    if content is None or isinstance(content, str):
        return
    if not isinstance(content, list):
        raise _Wrong(f"{where}.content is a {_kind(content)}, not a text or a list of parts")
    for number, part in enumerate(content):
        is_text = isinstance(part, dict) and part.get("type") == "text"
        if not is_text or not isinstance(part.get("text"), str):
            raise _Wrong(f"{where}.content[{number}] is no text part; only text is measured")


def _length(body: Mapping[str, Any], otherwise: int | None) -> int:
    for field in ("max_completion_tokens", "max_tokens"):
        if body.get(field) is not None:
            return _whole(body, field, 1) or 1
    if otherwise is None:
        raise _Wrong("no max_tokens; say max_tokens=N for lines without one")
    return otherwise


def _whole(line: Mapping[str, Any], field: str, least: int | None) -> int | None:
    value = line.get(field)
    if value is None and least is None:
        return None
    fine = isinstance(value, int) and not isinstance(value, bool)
    if not fine or (least is not None and value < least):  # type: ignore[operator]
        floor = "" if least is None else f" from {least}"
        raise _Wrong(f"{field} is not a whole number{floor}")
    return value


def _temperature(body: Mapping[str, Any]) -> float:
    value = body.get("temperature")
    if value is None:
        return 0.0
    if not isinstance(value, int | float) or isinstance(value, bool) or value < 0:
        raise _Wrong("temperature is not a number from 0")
    return float(value)


def _seconds(stamp: object) -> float:
    if isinstance(stamp, int | float) and not isinstance(stamp, bool) and math.isfinite(stamp):
        return float(stamp)
    if isinstance(stamp, str):
        try:
            return datetime.fromisoformat(stamp).timestamp()
        except (ValueError, OverflowError, OSError):
            pass
    raise _Wrong("timestamp is neither a number of seconds nor a date and time of ISO 8601")


def _traced(line: Mapping[str, Any], name: str, shrink: int) -> _Came:
    stamp, length = _whole(line, "timestamp", 0), _whole(line, "input_length", 1) or 1
    answer = _whole(line, "output_length", 1) or 1
    blocks = line.get("hash_ids")
    if not isinstance(blocks, list) or not all(isinstance(each, int) for each in blocks):
        raise _Wrong("hash_ids is not a list of whole numbers")
    needed = -(-length // BLOCK_TOKENS)
    if len(blocks) != needed:
        raise _Wrong(f"hash_ids has {len(blocks)} blocks; {length} tokens are {needed} of 512")
    digits = "".join(_digits(each, BLOCK_TOKENS // shrink) for each in blocks)
    request = PlannedRequest(
        prompt=name,
        endpoint="completions",
        text=digits[: max(1, length // shrink)],
        max_tokens=max(1, answer // shrink),
        content_class="digits",
        extra={"ignore_eos": True},
    )
    return _Came(request=request, at_s=(stamp or 0) / 1e3)


def _digits(block: int, tokens: int) -> str:
    """So many digits, always the same for one block."""
    drawn = hashlib.shake_256(str(block).encode()).digest(tokens)
    return "".join(str(each % 10) for each in drawn)


def _entries(file: Path, name: str, max_tokens: int) -> list[_Came]:
    try:
        whole = msgspec.json.decode(_bytes(file))
    except (msgspec.DecodeError, UnicodeDecodeError):
        whole = None
    if not isinstance(whole, list):
        raise UsageError(f"{file} is no list of conversations.", "It is no JSON list.", _NEXT)
    found: list[_Came] = []
    wrong: list[str] = []
    for number, entry in enumerate(whole, start=1):
        try:
            turns = _turns(entry)
        except _Wrong as error:
            wrong.append(f"{file}: conversation {number}: {error}")
            continue
        found += [
            _Came(
                request=PlannedRequest(
                    prompt=name, messages=each, max_tokens=max_tokens, private=True
                )
            )
            for each in turns
        ]
    _refuse(file, wrong)
    return found


def _turns(entry: object) -> Iterator[tuple[dict[str, Any], ...]]:
    """For each turn of a person, all that was said up to it."""
    said = entry.get("conversations") if isinstance(entry, dict) else None
    if not isinstance(said, list):
        raise _Wrong("no list called conversations")
    messages = [_said(number, each) for number, each in enumerate(said)]
    first = next((at for at, each in enumerate(messages) if each["role"] == "user"), None)
    if first is None:
        raise _Wrong("nobody asks anything in it")
    system = [each for each in messages[:first] if each["role"] == "system"]
    heard = system + messages[first:]
    return (tuple(heard[: at + 1]) for at, each in enumerate(heard) if each["role"] == "user")


def _said(number: int, said: object) -> dict[str, str]:
    where = f"conversations[{number}]"
    if not isinstance(said, dict) or not isinstance(said.get("value"), str):
        raise _Wrong(f"{where} is not an object with a value")
    role = _ROLES.get(said["from"]) if isinstance(said.get("from"), str) else None
    if role is None:
        raise _Wrong(f"{where} is from neither human, gpt nor system")
    return {"role": role, "content": said["value"]}
