"""Hypothesis strategies for prompt lengths, tool schemas and conversations.

They draw; what is drawn is measured by a search, in ``search``, or by tests of your own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from pytest_llmperf.errors import UsageError
from pytest_llmperf.planned import PlannedRequest
from pytest_llmperf.shapes.shape import Shape
from pytest_llmperf.workload import Prompts

if TYPE_CHECKING:
    from types import ModuleType

    from hypothesis.strategies import SearchStrategy

_NAMES = r"[a-z][a-z_]{2,23}"
_KINDS = ("string", "integer", "number", "boolean")


class Space(msgspec.Struct, frozen=True, kw_only=True):
    """The shapes that a search may try: from the smallest up to this many of each."""

    turns: int = 6
    tools: int = 8
    words: int = 1024
    step: int = 64
    """Lengths are whole multiples of it, so that neighbours differ by more than noise."""

    make: Callable[[Shape], PlannedRequest] | None = None
    """Makes a request of a shape out of your own words; ``None``: words that mean nothing, to
    which a drafter for real speech guesses badly."""

    def __post_init__(self) -> None:
        """Refuse a space that holds no conversation.

        :raises UsageError: a bound is no whole number, or below the least that it can be.
        """
        least = {"turns": 0, "tools": 0, "words": 1, "step": 1}
        for name, fewest in least.items():
            given = getattr(self, name)
            if not isinstance(given, int) or given < fewest:
                raise UsageError(
                    f"Space({name}={given!r}) holds no conversation.",
                    f"It is a whole number of at least {fewest}.",
                    "State the most of each that a conversation of yours may have.",
                )

    def prompts(self, shape: Shape) -> Prompts:
        """A workload of one shape alone; nonces keep its turns apart."""
        request = shape.request() if self.make is None else self.make(shape)
        return Prompts(name=str(shape), items=(request,))

    @property
    def largest(self) -> Shape:
        """The shape with the most of everything."""
        lengths = max(1, self.words // self.step)
        return Shape(turns=self.turns, tools=self.tools, words=lengths * self.step)


def hypothesis() -> ModuleType:
    """Hypothesis itself.

    :raises UsageError: it is not installed.
    """
    try:
        import hypothesis as found  # noqa: PLC0415 - loaded when a strategy is asked for
    except ModuleNotFoundError:
        raise UsageError(
            "Shapes of conversations are drawn by hypothesis, which is not installed.",
            "import hypothesis found nothing.",
            "Install pytest-llmperf[shapes].",
        ) from None
    return found


def _strategies() -> Any:  # noqa: ANN401 - a module
    hypothesis()
    from hypothesis import strategies  # noqa: PLC0415 - loaded when a strategy is asked for

    return strategies


def prompt_lengths(most_words: int, *, step: int = 1) -> SearchStrategy[int]:
    """Lengths in words, multiples of ``step`` from one step on; shrinks toward the shortest."""
    lengths: SearchStrategy[int] = _strategies().integers(1, max(1, most_words // step))
    return lengths.map(lambda number: number * step)


def tool_schemas(most_parameters: int = 6) -> SearchStrategy[dict[str, Any]]:
    """Tools in OpenAI's shape, with names, kinds and required parameters of every sort."""
    st = _strategies()
    names = st.from_regex(_NAMES, fullmatch=True)
    kinds = st.sampled_from(_KINDS).map(lambda kind: {"type": kind})
    parameters: SearchStrategy[dict[str, Any]] = st.dictionaries(
        names, kinds, max_size=most_parameters
    )
    made: SearchStrategy[dict[str, Any]] = st.builds(_tool, names, parameters)
    return made


def conversations(space: Space | None = None) -> SearchStrategy[Shape]:
    """Shapes of conversations; shrinks toward fewer turns, then fewer tools, then fewer words."""
    within = space or Space()
    st = _strategies()
    drawn: SearchStrategy[Shape] = st.builds(
        Shape,
        turns=st.integers(0, within.turns),
        tools=st.integers(0, within.tools),
        words=prompt_lengths(within.words, step=within.step),
    )
    return drawn


def _tool(name: str, parameters: dict[str, Any]) -> dict[str, Any]:
    schema = {"type": "object", "properties": parameters, "required": sorted(parameters)[:1]}
    return {"type": "function", "function": {"name": name, "parameters": schema}}
