"""Your own traffic as a workload: requests and arrival times out of files; their words stay there.

What stands in a line is in ``jsonl`` (chat requests) and ``mooncake`` (traces of lengths and block
ids), shared conversations are in ``sharegpt``. Sending requests at their times is in the room
``load``; what is sent of one request is in ``planned``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Self

from pytest_llmperf.errors import UsageError
from pytest_llmperf.traffic.jsonl import logged
from pytest_llmperf.traffic.lines import NEXT, Came, read_lines
from pytest_llmperf.traffic.mooncake import BLOCK_TOKENS, traced
from pytest_llmperf.traffic.sharegpt import entries
from pytest_llmperf.workload import Prompts

__all__ = ["BLOCK_TOKENS", "Traffic"]


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
        read = read_lines(file, lambda line: logged(line, told, max_tokens))
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
        if not isinstance(shrink, int) or not 1 <= shrink <= BLOCK_TOKENS:
            raise UsageError(
                f"A trace cannot be shrunk by {shrink}.",
                f"A block of {BLOCK_TOKENS} tokens must keep one or more.",
                f"Give a whole number from 1 to {BLOCK_TOKENS}.",
            )
        file = Path(path)
        told = name or file.stem
        read = read_lines(file, lambda line: traced(line, told, shrink))
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
        read = entries(file, told, max_tokens)
        return cls._made(file, told, read)

    @classmethod
    def _made(cls, file: Path, name: str, read: list[Came]) -> Self:
        if not read:
            raise UsageError(f"{file} holds no request.", "Every line of it is empty.", NEXT)
        timed = [each for each in read if each.at_s is not None]
        arrivals = None
        if timed:
            read = sorted(read, key=lambda each: each.at_s or 0.0)
            first = read[0].at_s or 0.0
            arrivals = tuple((each.at_s or 0.0) - first for each in read)
        return cls(name=name, items=tuple(each.request for each in read), arrivals_s=arrivals)
