"""The search for the smallest shape whose verdict is REGRESS, by few probes.

Pure but for the probe that it is given: what one measures and judges is in ``claim``.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from pytest_llmperf.shapes.shape import Shape
from pytest_llmperf.shapes.strategies import Space, conversations, hypothesis
from pytest_llmperf.verdict import Word

Probe = Callable[[Shape], Word | None]
"""Measures a shape and gives its word; ``None`` when no more may be measured."""

ENOUGH = 6
"""Shapes beside the largest that are tried before a budget is taken to hold."""

_EXAMPLES = 100
_SEED = 1


class Search:
    """Shapes tried so far, each once, in the order in which they were."""

    def __init__(self, space: Space, probe: Probe) -> None:
        self._space = space
        self._probe = probe
        self._answers: dict[Shape, bool] = {}
        self.words: dict[Shape, Word] = {}
        """The word of each shape that was measured."""
        self.is_over = False
        """Whether the search ended before it had come to its end."""

    def smallest(self) -> Shape | None:
        """The smallest shape found whose word is REGRESS; ``None`` if there is none.

        The largest goes first. If it holds, a few others are drawn, since more of everything need
        not be slowest. If one breaks, Hypothesis shrinks it: derandomised, without a database. A
        shape that has no more of anything than one which did not break is then not measured.
        """
        if self._breaks(self._space.largest):
            return self._shrunk(None)
        return self._shrunk(ENOUGH)

    @property
    def broken(self) -> list[Shape]:
        """The shapes whose word is REGRESS, smallest first."""
        return sorted(each for each, word in self.words.items() if word == "REGRESS")

    def _shrunk(self, most: int | None) -> Shape | None:
        library = hypothesis()
        first = len(self.words)

        def breaks(shape: Shape) -> bool:
            enough = most is not None and not self.broken and len(self.words) - first >= most
            return False if enough else self._breaks(shape)

        try:
            found: Shape = library.find(
                conversations(self._space),
                breaks,
                settings=library.settings(
                    database=None,
                    max_examples=_EXAMPLES,
                    phases=(library.Phase.generate, library.Phase.shrink),
                    deadline=None,
                ),
                random=Random(_SEED),  # noqa: S311 - the same search each time, no secret
            )
        except library.errors.NoSuchExample:
            return min(self.broken, default=None)
        return min(found, *self.broken)

    def _breaks(self, shape: Shape) -> bool:
        """Whether a shape breaks the budget, as it was answered the first time."""
        if shape not in self._answers:
            self._answers[shape] = self._ask(shape)
        return self._answers[shape]

    def _holding(self) -> list[Shape]:
        """Shapes that did not break, below which none is looked for; the largest bounds nothing."""
        largest = self._space.largest
        return [each for each, word in self.words.items() if word != "REGRESS" and each != largest]

    def _ask(self, shape: Shape) -> bool:
        if self.is_over or any(shape.is_within(each) for each in self._holding()):
            return False
        word = self._probe(shape)
        if word is None:
            self.is_over = True
            return False
        self.words[shape] = word
        return word == "REGRESS"
