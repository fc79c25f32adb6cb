"""The training corpus of the miniature: seeded conversations of the household, short and long.

It decides what is said and how often, not how it is written, cut into tokens or learnt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from pytest_llmperf.miniature.household import (
    REQUESTS,
    ROUTER_SYSTEM_PROMPT,
    TOOLS,
    Request,
    ToolRequest,
    request_nonce,
)
from pytest_llmperf.miniature.transcript import render

__all__ = ["Chat", "exchange", "middle_chat", "router_chat", "short_chat"]

_SHARES = {"tool": 0.45, "json": 0.2, "code": 0.2, "prose": 0.15}
_WEIGHTS = {"tool": 1.0, "json": 1.0, "code": 1.0, "prose": 0.3}
_BRIEF_SYSTEM_PROMPTS = (
    "You are Anton, the assistant of a busy house.",
    "You are the router. Choose exactly one tool and call it at once.",
    "You are a friendly assistant. Be brief.",
)
_SPOKEN_ONLY = 0.15
_WITH_NONCE = 0.6
_WITH_SYSTEM = 0.3


@dataclass(frozen=True)
class Chat:
    """One conversation: OpenAI messages and the tools that were offered in it.

    ``weights`` says, for each turn of the assistant, how much its words count in training.
    """

    messages: tuple[dict[str, Any], ...]
    tools: tuple[dict[str, Any], ...] = ()
    weights: tuple[float, ...] = ()

    def text(self) -> str:
        """Return the conversation as the model reads it."""
        return render(self.messages, self.tools)


def exchange(request: ToolRequest | Request, call_id: str = "call") -> list[dict[str, Any]]:
    """Return the messages of one request and its ideal reply: two, or four around a tool call."""
    user = {"role": "user", "content": request.text}
    answer = {"role": "assistant", "content": request.answer}
    if isinstance(request, Request):
        return [user, answer]
    function = {"name": request.name, "arguments": request.arguments}
    call = {"id": call_id, "type": "function", "function": function}
    return [
        user,
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call_id, "content": request.result},
        answer,
    ]


def short_chat(r: Random) -> Chat:
    """Draw one to three requests, some 60 to 400 tokens: from these, copying is learnt."""
    head = [_system(r.choice(_BRIEF_SYSTEM_PROMPTS))] if r.random() < _WITH_SYSTEM else []
    return _chat(r, head, (), r.randrange(1, 4))


def middle_chat(r: Random) -> Chat:
    """Draw a conversation over a few of the tools, with four to eight requests."""
    tools = [TOOLS[i] for i in sorted(r.sample(range(len(TOOLS)), r.randrange(2, 5)))]
    return _chat(r, [_system(r.choice(_BRIEF_SYSTEM_PROMPTS))], tools, r.randrange(4, 9))


def router_chat(r: Random, requests: int | None = None) -> Chat:
    """Draw a conversation with the router's prompt, all twelve tools and 6 to 16 *requests*.

    More often than not a nonce line stands before the system prompt, as it does in a suite that
    wants a cold prefix cache.
    """
    nonce = f"{request_nonce(r)}\n" if r.random() < _WITH_NONCE else ""
    return _chat(r, [_system(nonce + ROUTER_SYSTEM_PROMPT)], TOOLS, requests or r.randrange(6, 17))


def _system(text: str) -> dict[str, Any]:
    return {"role": "system", "content": text}


def _chat(
    r: Random, head: list[dict[str, Any]], tools: Sequence[dict[str, Any]], requests: int
) -> Chat:
    """Add *requests* exchanges to *head*; a few tool requests are only answered, at no weight."""
    messages, weights = list(head), []
    for turn in range(requests):
        kind = r.choices(list(_SHARES), list(_SHARES.values()))[0]
        request, weight = REQUESTS[kind](r), _WEIGHTS[kind]
        if isinstance(request, ToolRequest) and r.random() < _SPOKEN_ONLY:
            request, weight = Request(request.text, request.answer), 0.0
        messages += exchange(request, f"call{turn}")
        weights.append(weight)
    return Chat(tuple(messages), tuple(tools), tuple(weights))
