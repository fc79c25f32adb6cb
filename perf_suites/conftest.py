"""What these suites ask of an engine: the router of a household, and requests by kind of output."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import product
from random import Random
from typing import Any

import msgspec
import pytest

from pytest_llmperf import Conversations, PlannedRequest, Prompts
from pytest_llmperf.miniature import household
from pytest_llmperf.shapes import Shape
from pytest_llmperf.workload import unchanging

Message = dict[str, Any]

SPEAKER = "You are Anton, the assistant of a busy house."
CHOOSER = "You are the router. Choose exactly one tool and call it at once."

ROUTER_HISTORIES = (6, 8, 10)
"""Requests that each of the router's conversations has answered before the turn we measure."""

CHOICE = ("set_light", "start_timer", "create_routine")
"""The tools of the shorter prompts: a choice, but a small one."""

TOKENS_PER_WORD = 1.15
"""Of household prose under the miniature's tokenizer; other tokenizers are close, not equal."""

SHORT_ANSWER = 48
"""Tokens of an answer in which one class is held against another; no class stops before."""

SAMPLED = 0.7
"""The other temperature."""

STORIES_TOLD = 14
"""Stories that a storyteller's conversation holds already: about 1,300 tokens."""

TURN_FRAME_TOKENS = 93
"""Nonce, system line, last message and turn marks around the notes, by that tokenizer."""


@pytest.fixture(scope="session")
def router() -> Conversations:
    """Three live conversations: the router's whole prompt, its twelve tools, and some history."""
    return unchanging(_router)


@pytest.fixture(scope="session")
def routine_router() -> Conversations:
    """The router's live conversations, in which each last message asks for a routine."""
    return unchanging(_routine_router)


@pytest.fixture(scope="session")
def cold_router() -> Prompts:
    """The router's whole prompt and a request for a long routine, with no history."""
    return unchanging(lambda: _routines("cold_router", household.ROUTER_SYSTEM_PROMPT))


@pytest.fixture(scope="session")
def tool_calls() -> Prompts:
    """Requests for a routine of four steps: a long, predictable call of one of three tools."""
    return unchanging(lambda: _routines("tool_calls", CHOOSER, *CHOICE))


@pytest.fixture(scope="session")
def json_records() -> Prompts:
    """Requests for three to five records as compact JSON."""
    return unchanging(lambda: _spoken("json_records", "json", household.json_request))


@pytest.fixture(scope="session")
def code() -> Prompts:
    """Requests for a small Python function, class or test."""
    return unchanging(lambda: _spoken("code", "code", household.code_request))


@pytest.fixture(scope="session")
def prose() -> Prompts:
    """Requests for a few lines whose words are hard to guess."""
    return unchanging(lambda: _spoken("prose", "prose", household.prose_request))


@pytest.fixture(scope="session")
def storyteller() -> Conversations:
    """Two live conversations of stories that were told, and requests for one more."""
    return unchanging(_stories)


@pytest.fixture(scope="session")
def classes_of_output(
    tool_calls: Prompts, json_records: Prompts, code: Prompts, prose: Prompts
) -> list[Prompts]:
    """The same prompts as elsewhere with shorter answers, and prose once more, sampled.

    No seed is sent: with one, and a drafter, vLLM's engine on a CPU dies at a sampled request.
    """
    shorter = [_limited(each, SHORT_ANSWER) for each in (tool_calls, json_records, code, prose)]
    return [*shorter, _sampled(prose)]


@pytest.fixture(scope="session")
def short_answers() -> Prompts:
    """Short questions of the household with answers of two dozen tokens, for many at once."""
    return unchanging(
        lambda: _spoken("short_answers", "prose", household.prose_request, max_tokens=24)
    )


@pytest.fixture(scope="session")
def conversations_of() -> Callable[[int], Conversations]:
    """Make live conversations of about so many prompt tokens."""
    return lambda prompt_tokens: unchanging(lambda: _notebooks(prompt_tokens))


@pytest.fixture(scope="session")
def house_talk() -> Callable[[Shape], PlannedRequest]:
    """Make a conversation of any shape: records asked for before, tools, notes, one more record."""
    return _talk


def _talk(shape: Shape) -> PlannedRequest:
    drawn = Random("talk")
    messages = [_said("system", SPEAKER)]
    for _ in range(shape.turns):
        asked = household.json_request(drawn)
        messages += [_said("user", asked.text), _said("assistant", asked.answer)]
    last = household.json_request(Random("last")).text
    messages.append(_said("user", f"{_notes(shape.words, 'talk')} {last}"))
    return _planned(messages, "json", max_tokens=24, tools=household.TOOLS[: shape.tools])


def _router() -> Conversations:
    histories = tuple(_history(requests) for requests in ROUTER_HISTORIES)
    return Conversations(name="router", histories=histories, branches=_branches())


def _history(requests: int) -> PlannedRequest:
    """One conversation whose residents have asked for so many things already."""
    drawn = Random(requests)
    messages = [_said("system", household.ROUTER_SYSTEM_PROMPT)]
    for number in range(requests):
        messages += _exchange(household.tool_request(drawn), f"call_{number}")
    return _planned(messages, "tool_call", max_tokens=48, tools=household.TOOLS)


def _stories() -> Conversations:
    histories = []
    for seed in ("first", "second"):
        drawn = Random(seed)
        messages = [_said("system", SPEAKER)]
        for _ in range(STORIES_TOLD):
            story = household.prose_request(drawn)
            messages += [_said("user", story.text), _said("assistant", story.answer)]
        histories.append(_planned(messages, "prose", max_tokens=SHORT_ANSWER))
    return Conversations(name="storyteller", histories=tuple(histories), branches=_wishes())


def _wishes() -> tuple[str, ...]:
    """Requests for a story about different things, in words of equal number and length."""
    drawn = Random("wishes")
    texts = {household.prose_request(drawn).text for _ in range(4000)}
    sizes = Counter((len(text.split()), len(text)) for text in texts)
    ((words, letters), _), *_ = sizes.most_common(1)
    alike = sorted(text for text in texts if (len(text.split()), len(text)) == (words, letters))
    drawn.shuffle(alike)
    return tuple(alike[:41])


def _limited(workload: Prompts, max_tokens: int, temperature: float = 0.0) -> Prompts:
    items = tuple(
        msgspec.structs.replace(each, max_tokens=max_tokens, temperature=temperature)
        for each in workload.items
    )
    return msgspec.structs.replace(workload, items=items)


def _sampled(workload: Prompts) -> Prompts:
    """The same at another temperature; drawn answers would else end where chance ends them."""
    drawn = _limited(workload, SHORT_ANSWER, temperature=SAMPLED)
    items = tuple(msgspec.structs.replace(each, extra={"ignore_eos": True}) for each in drawn.items)
    return msgspec.structs.replace(drawn, name=f"sampled_{workload.name}", items=items)


def _branches() -> tuple[str, ...]:
    """Last messages that differ in words of equal length, from their first word on."""
    people = [person for person in household.RESIDENTS if len(person) == len("Greta")]
    rooms = [room for room in household.ROOMS if len(room) == len("kitchen")]
    colours = [colour for colour in household.COLOURS if len(colour) == len("white")]
    worded = [
        # Longer than a cache block: after a shorter message, an engine that drops old blocks of
        # its sliding-window layers would by chance still hold those that the next turn needs.
        f"{person} here, in the {room} with the guests. The light is cold and the {room} is quiet. "
        f"Set the light in the {room} to {level} percent and {colour}."
        for person, room, level, colour in product(people, rooms, range(10, 100, 5), colours)
    ]
    Random("branches").shuffle(worded)
    return tuple(worded[:41])


def _routine_router() -> Conversations:
    histories = tuple(
        msgspec.structs.replace(_history(requests), max_tokens=128) for requests in ROUTER_HISTORIES
    )
    branches = _routine_branches()
    return Conversations(name="routine_router", histories=histories, branches=branches)


def _routine_branches(count: int = 41) -> tuple[str, ...]:
    """Last messages that ask for routines of four steps, in words of equal length."""
    names = [name for name in household.ROUTINES if len(name) == len("bedtime")]
    rooms = [room for room in household.ROOMS if len(room) == len("kitchen")]
    action, device, day = household.ACTIONS[0], household.DEVICES[0], household.DAYS[0]
    drawn = Random("routine branches")
    worded: dict[str, None] = {}
    while len(worded) < count:
        steps = ", then ".join(
            f"{action} the {drawn.choice(rooms)} {device} to {drawn.randrange(10, 100, 5)}"
            for _ in range(4)
        )
        opening = f"Create the routine {drawn.choice(names)} on {day}"
        worded[f"{opening} at {drawn.randrange(10, 24)} o'clock: {steps}."] = None
    return tuple(worded)


def _exchange(request: household.ToolRequest, call_id: str) -> list[Message]:
    """A request, its tool call, the tool's result and the closing sentence, in OpenAI's shape."""
    function = {"name": request.name, "arguments": json.dumps(request.arguments)}
    call = {"id": call_id, "type": "function", "function": function}
    return [
        _said("user", request.text),
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call_id, "content": request.result},
        _said("assistant", request.answer),
    ]


def _routines(name: str, system: str, *tools: str, count: int = 24) -> Prompts:
    """Requests for a routine of four steps, offered all tools or the named ones."""
    drawn = Random(name)
    offered = [each for each in household.TOOLS if not tools or each["function"]["name"] in tools]
    texts = [household.routine_request(drawn, steps=4).text for _ in range(count)]
    items = [
        _planned([_said("system", system), _said("user", text)], "tool_call", tools=offered)
        for text in texts
    ]
    return Prompts(name=name, items=tuple(items))


def _spoken(
    name: str,
    content_class: str,
    draw: Callable[[Random], household.Request],
    count: int = 24,
    max_tokens: int = 128,
) -> Prompts:
    """Requests that need no tool."""
    drawn = Random(name)
    items = [
        _planned(
            [_said("system", SPEAKER), _said("user", draw(drawn).text)],
            content_class,
            max_tokens=max_tokens,
        )
        for _ in range(count)
    ]
    return Prompts(name=name, items=tuple(items))


def _notebooks(prompt_tokens: int) -> Conversations:
    """Two conversations about notes that were read out before, filled up to a length."""
    words = round((prompt_tokens - TURN_FRAME_TOKENS) / TOKENS_PER_WORD)
    histories = tuple(
        _planned(
            [
                _said("system", SPEAKER),
                _said("user", _notes(words, seed)),
                _said("assistant", "I will keep these notes."),
            ],
            "notes",
            max_tokens=16,
        )
        for seed in ("first", "second")
    )
    name = f"notes_of_{prompt_tokens}_tokens"
    return Conversations(name=name, histories=histories, branches=_branches())


def _notes(words: int, seed: str) -> str:
    drawn = Random(seed)
    text: list[str] = []
    while len(text) < words:
        text += household.prose_request(drawn).answer.split()
    return " ".join(text[:words])


def _planned(
    messages: Sequence[Message],
    content_class: str,
    *,
    max_tokens: int = 128,
    tools: Sequence[dict[str, Any]] = (),
) -> PlannedRequest:
    return PlannedRequest(
        prompt=content_class,
        messages=tuple(messages),
        tools=tuple(tools),
        max_tokens=max_tokens,
        temperature=0.0,
        content_class=content_class,
    )


def _said(role: str, content: str) -> Message:
    return {"role": role, "content": content}
