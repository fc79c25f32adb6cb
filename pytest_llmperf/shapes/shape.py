"""One shape of a conversation, and the request that has it.

Which shapes are tried is in ``search``; strategies that draw them are in ``strategies``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import msgspec

from pytest_llmperf.planned import PlannedRequest
from pytest_llmperf.units import counted

_ASKED_WORDS = 16
_ANSWERED_WORDS = 12
_PARAMETERS = ("room", "level", "minutes")
_WORDS = (
    *("the", "light", "in", "kitchen", "is", "cold", "and", "door", "to", "garden", "was", "open"),
    *("when", "guests", "came", "for", "dinner", "with", "bread", "some", "lamp", "near", "stairs"),
    *("please", "turn", "down", "music", "before", "night", "water", "plants", "by", "window"),
)


class Shape(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """How a conversation is shaped; smaller in every part is a smaller conversation."""

    turns: int = 0
    """Exchanges before the message that is measured."""
    tools: int = 0
    """Tool schemas that are offered."""
    words: int = 8
    """Words of the last message."""

    def __str__(self) -> str:
        parts = ((self.turns, "earlier turn"), (self.tools, "tool"), (self.words, "word"))
        return ", ".join(counted(number, noun) for number, noun in parts)

    def is_within(self, other: Shape) -> bool:
        """Whether it has no more of anything than another."""
        return self.turns <= other.turns and self.tools <= other.tools and self.words <= other.words

    def request(self, *, max_tokens: int = 8) -> PlannedRequest:
        """A chat of this shape; the same shape always says the same."""
        return PlannedRequest(
            prompt=str(self),
            messages=tuple(self._messages()),
            tools=tuple(_tool(number) for number in range(self.tools)),
            max_tokens=max_tokens,
            content_class="prose",
        )

    def _messages(self) -> Iterator[dict[str, Any]]:
        yield _said("system", "You are the assistant of a busy house.")
        for number in range(self.turns):
            yield _said("user", _text(_ASKED_WORDS, f"asked {number}"))
            yield _said("assistant", _text(_ANSWERED_WORDS, f"answered {number}"))
        yield _said("user", _text(self.words, "last"))


def _said(role: str, content: str) -> dict[str, Any]:
    return {"role": role, "content": content}


def _text(words: int, seed: str) -> str:
    drawn = hashlib.shake_256(seed.encode()).digest(words)
    return " ".join(_WORDS[each % len(_WORDS)] for each in drawn)


def _tool(number: int) -> dict[str, Any]:
    properties = {
        name: {"type": "string", "description": _text(6, f"{number} {name}")}
        for name in _PARAMETERS
    }
    return {
        "type": "function",
        "function": {
            "name": f"set_device_{number}",
            "description": _text(12, f"tool {number}"),
            "parameters": {
                "type": "object",
                "properties": properties,
                "required": [_PARAMETERS[0]],
            },
        },
    }
