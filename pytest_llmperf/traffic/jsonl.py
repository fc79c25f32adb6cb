"""One line of a log of chat requests: an OpenAI body, and when it came.

Lines in general are in ``lines``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from pytest_llmperf.planned import RESERVED, PlannedRequest
from pytest_llmperf.traffic.lines import Came, Wrong, kind, whole
from pytest_llmperf.units import real

_NOT_SENT = RESERVED | {"max_completion_tokens", "user", "metadata", "store", "safety_identifier"}
"""Fields of a body that are read here, or that say who asked."""


_MILLISECONDS_FROM = 1e11
"""Seconds since 1970 reach it in the year 5138; milliseconds did in 1973."""


def logged(line: Mapping[str, Any], name: str, max_tokens: int | None) -> Came:
    """The request of one line.

    :param max_tokens: for a line that says none.
    :raises Wrong: it cannot be sent.
    """
    body = line.get("body", line)
    if not isinstance(body, dict):
        raise Wrong(f"body is a {kind(body)}, not an object")
    stamp = line.get("timestamp")
    extra = {key: value for key, value in body.items() if key not in {*_NOT_SENT, "timestamp"}}
    for field in ("n", "best_of"):
        if extra.get(field) not in (None, 1):
            raise Wrong(f"{field} asks for several answers; one request has one")
    request = PlannedRequest(
        prompt=name,
        **_asked(body),
        max_tokens=_length(body, max_tokens),
        temperature=_temperature(body),
        seed=whole(body, "seed", None),
        extra=extra,
        private=True,
    )
    at_s, clock = (None, "") if stamp is None else _time(stamp)
    return Came(request=request, at_s=at_s, clock=clock)


def _asked(body: Mapping[str, Any]) -> dict[str, Any]:
    """The prompt's fields of a planned request."""
    if "messages" in body:
        tools = body.get("tools") or []
        if not isinstance(tools, list) or not all(isinstance(each, dict) for each in tools):
            raise Wrong("tools is not a list of objects")
        return {"messages": tuple(_messages(body["messages"])), "tools": tuple(tools)}
    if "prompt" not in body:
        raise Wrong("neither messages nor prompt")
    if not isinstance(body["prompt"], str) or not body["prompt"]:
        raise Wrong(f"prompt is {_article(body['prompt'])}, not a text with anything in it")
    return {"endpoint": "completions", "text": body["prompt"]}


def _article(value: object) -> str:
    return "an empty text" if value == "" else f"a {kind(value)}"


def _messages(found: object) -> Iterator[dict[str, Any]]:
    if not isinstance(found, list) or not found:
        raise Wrong("messages is not a list with anything in it")
    for number, each in enumerate(found):
        where = f"messages[{number}]"
        if not isinstance(each, dict) or not isinstance(each.get("role"), str):
            raise Wrong(f"{where} is not an object with a role")
        _check_content(where, each.get("content"))
        yield each


def _check_content(where: str, content: object) -> None:
    if content is None or isinstance(content, str):
        return
    if not isinstance(content, list):
        raise Wrong(f"{where}.content is a {kind(content)}, not a text or a list of parts")
    for number, part in enumerate(content):
        is_text = isinstance(part, dict) and part.get("type") == "text"
        if not is_text or not isinstance(part.get("text"), str):
            raise Wrong(f"{where}.content[{number}] is no text part; only text is measured")


def _length(body: Mapping[str, Any], otherwise: int | None) -> int:
    for field in ("max_completion_tokens", "max_tokens"):
        if body.get(field) is not None:
            return whole(body, field, 1) or 1
    if otherwise is None:
        raise Wrong("no max_tokens; say max_tokens=N for lines without one")
    return otherwise


def _temperature(body: Mapping[str, Any]) -> float:
    value = body.get("temperature")
    if value is None:
        return 0.0
    number = real(value)
    if number is None or number < 0:
        raise Wrong("temperature is not a number from 0")
    return number


def _time(stamp: object) -> tuple[float, str]:
    """Seconds of some clock, and how they are written."""
    number = real(stamp)
    if number is not None:
        if number >= _MILLISECONDS_FROM:
            return number / 1e3, "a number of milliseconds since 1970"
        return number, "a number of seconds"
    if isinstance(stamp, str):
        try:
            found = datetime.fromisoformat(stamp)
            if found.tzinfo is None:  # of whatever place, but of one: no hour is left out there
                return found.replace(tzinfo=UTC).timestamp(), "a date and time of no zone"
            return found.timestamp(), "a date and time with its zone"
        except (ValueError, OverflowError, OSError):
            pass
    raise Wrong("timestamp is neither a number of seconds nor a date and time of ISO 8601")
