"""One line of a trace of lengths and block ids; its words are made up.

Lines in general are in ``lines``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from pytest_llmperf.planned import PlannedRequest
from pytest_llmperf.traffic.lines import Came, Wrong, whole

BLOCK_TOKENS = 512
"""Tokens that one of a trace's ``hash_ids`` stands for."""


def traced(line: Mapping[str, Any], name: str, shrink: int) -> Came:
    """The request of one line, every length divided by ``shrink``.

    :raises Wrong: it cannot be sent.
    """
    stamp, length = whole(line, "timestamp", 0), whole(line, "input_length", 1) or 1
    answer = whole(line, "output_length", 1) or 1
    blocks = line.get("hash_ids")
    if not isinstance(blocks, list) or not all(isinstance(each, int) for each in blocks):
        raise Wrong("hash_ids is not a list of whole numbers")
    needed = -(-length // BLOCK_TOKENS)
    if len(blocks) != needed:
        raise Wrong(f"hash_ids has {len(blocks)} blocks; {length} tokens are {needed} of 512")
    digits = "".join(_digits(each, BLOCK_TOKENS // shrink) for each in blocks)
    request = PlannedRequest(
        prompt=name,
        endpoint="completions",
        text=digits[: max(1, length // shrink)],
        max_tokens=max(1, answer // shrink),
        content_class="digits",
        extra={"ignore_eos": True},
    )
    return Came(request=request, at_s=(stamp or 0) / 1e3)


def _digits(block: int, tokens: int) -> str:
    """So many digits, always the same for one block."""
    drawn = hashlib.shake_256(str(block).encode()).digest(tokens)
    return "".join(str(each % 10) for each in drawn)
