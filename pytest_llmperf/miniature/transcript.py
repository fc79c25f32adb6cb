"""Writes a conversation as the text that the model reads: the chat template's twin in Python.

It neither chooses what is said nor cuts text into tokens; the template beside it is what vLLM runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["CHAT_TEMPLATE", "SPECIAL_TOKENS", "render"]

CHAT_TEMPLATE = Path(__file__).with_name("chat_template.jinja")
"""The Jinja template that the served checkpoint carries; :func:`render` agrees with it."""

SPECIAL_TOKENS = (
    "<pad>", "<eos>", "<bos>", "<unk>", "<|turn>", "<turn|>", "<|tool>", "<tool|>",
    "<|tool_call>", "<tool_call|>", "<|tool_response>", "<tool_response|>", '<|"|>',
    "<|channel>", "<channel|>", "<|think|>", "<mask>",
)  # fmt: skip
"""The control tokens of the format; the position of each is its token id."""

_QUOTE = '<|"|>'
Message = Mapping[str, Any]
Argument = Any  # a string, number, boolean, nothing, list or mapping


def render(
    messages: Sequence[Message],
    tools: Sequence[Mapping[str, Any]] = (),
    *,
    add_generation_prompt: bool = False,
) -> str:
    """Return the text of a conversation, control tokens included, from ``<bos>`` on.

    *messages* and *tools* have OpenAI's shapes, with the arguments of tool calls as mappings.
    Without a generation prompt, the text of ``messages[:k]`` is a prefix of that of
    ``messages[:k + 1]``.
    """
    has_system = bool(messages) and messages[0]["role"] in ("system", "developer")
    out = ["<bos>"]
    if has_system or tools:
        head = messages[0]["content"] if has_system else ""
        out.append(f"<|turn>system\n{head}{''.join(map(_declaration, tools))}<turn|>\n")
    is_open = False
    for position, message in enumerate(messages[has_system:], start=has_system):
        text, is_open = _message(message, messages[:position], is_open)
        out.append(text)
    if add_generation_prompt and not is_open:
        out.append("<|turn>model\n")
    return "".join(out)


def _message(message: Message, earlier: Sequence[Message], is_open: bool) -> tuple[str, bool]:
    """Return the text of one message, and whether it leaves the model's turn open."""
    role, content = message["role"], message.get("content") or ""
    if role == "tool":
        name = message.get("name") or _called(earlier, message.get("tool_call_id"))
        response = f"response:{name}{{value:{_value(content)}}}"
        return f"<|tool_response>{response}<tool_response|>", is_open
    if role != "assistant":
        return f"{_closing(is_open)}<|turn>{role}\n{content}<turn|>\n", False
    opening = "" if is_open else "<|turn>model\n"
    calls = message.get("tool_calls") or ()
    if calls:
        return opening + content + "".join(map(_call, calls)), True
    return f"{opening}{content}<turn|>\n", False


def _closing(is_open: bool) -> str:
    return "<turn|>\n" if is_open else ""


def _called(earlier: Sequence[Message], call_id: str | None) -> str:
    """Return the name of the function that the last call *call_id* named, or ``tool``."""
    name = "tool"
    for message in earlier:
        for call in message.get("tool_calls") or ():
            if call.get("id") and call["id"] == call_id:
                name = call["function"]["name"]
    return name


def _call(call: Mapping[str, Any]) -> str:
    function = call["function"]
    return f"<|tool_call>call:{function['name']}{{{_fields(function['arguments'])}}}<tool_call|>"


def _declaration(tool: Mapping[str, Any]) -> str:
    function = tool["function"]
    description = _value(function["description"])
    parameters = _schema(function["parameters"])
    return (
        f"<|tool>declaration:{function['name']}"
        f"{{description:{description},parameters:{parameters}}}<tool|>"
    )


def _schema(schema: Mapping[str, Any]) -> str:
    parts = []
    if schema.get("description"):
        parts.append(f"description:{_value(schema['description'])},")
    if schema.get("enum"):
        parts.append(f"enum:{_value(schema['enum'])},")
    if isinstance(schema.get("items"), Mapping):
        parts.append(f"items:{_schema(schema['items'])},")
    if schema.get("properties"):
        inner = ",".join(f"{name}:{_schema(p)}" for name, p in schema["properties"].items())
        parts.append(f"properties:{{{inner}}},")
    parts.append(f"type:{_value(schema.get('type', 'object').upper())}")
    return "{" + "".join(parts) + "}"


def _fields(fields: Mapping[str, Any]) -> str:
    return ",".join(f"{key}:{_value(value)}" for key, value in fields.items())


def _value(value: Argument) -> str:
    """Write one argument as Gemma 4 does: strings between quote tokens, numbers bare."""
    if isinstance(value, str):
        return f"{_QUOTE}{value}{_QUOTE}"
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "null"
    if isinstance(value, Mapping):
        return f"{{{_fields(value)}}}"
    if isinstance(value, Sequence):
        return f"[{','.join(map(_value, value))}]"
    return str(value)
