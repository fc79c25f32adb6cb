"""From verdicts to text: the table at the end of a run, JSON, and Markdown for a job's summary.

Nothing is decided here: the words come from ``verdict``, the numbers' shapes from ``units``.
"""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from itertools import groupby, zip_longest
from typing import Any

import msgspec

from pytest_llmperf.assumption import Comparison
from pytest_llmperf.denominator import Denominator
from pytest_llmperf.units import NOT_MEASURED, counted, measured, quantity
from pytest_llmperf.verdict import WORDS, Verdict, Word

NOT_JUDGED = "not judged"
"""What stands where a verdict would, when a claim had nothing to be judged by."""

SAME_SAMPLES = "the same samples counted otherwise"
"""The heading over a gate's other denominators."""

_COLOURS: dict[Word | None, str] = {
    "PASS": "32",
    "REGRESS": "1;31",
    "INCONCLUSIVE": "33",
    "INVALID": "1;35",
    None: "2",
}
_BOLD, _DIM = "1", "2"
_VERDICT_WIDTH = 12
_GAP = 2
_MARGIN = _VERDICT_WIDTH + _GAP
_NUMBER_WIDTHS = (24, 34)
_NARROWEST = 64
_LABEL = 11
_GLUE = "\x1f"
_BEFORE_UNIT = re.compile(r"(?<=\d) (?=(?:s|ms|tok/s)\b|%)")
_ASCII = str.maketrans("─━●│▁▂▃▄▅▆▇█", "-=o|_.:-=+*#")


class Row(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One claim of one gate: a row of the table."""

    gate: str
    """The test's short node id."""
    verdict: Verdict
    denominator: Denominator
    estimate: float | None = None
    """The number where there is no comparison, as for a claim without a budget."""
    is_bound: bool = False
    """Whether the estimate is only what the true number is more than."""
    arms: str | None = None
    """For a ratio, what is over what: ``gemma_autoregressive over gemma``."""
    evidence: str = ""
    """What proves the number: ``30 of 30 turns cached, 2,176 of 2,240 tokens``."""
    beside: tuple[tuple[str, str], ...] = ()
    """The same samples under other denominators, as (its words, the value as text)."""
    findings: tuple[str, ...] = ()
    """What a reader should know of the evidence that does not make it invalid."""
    picture: tuple[str, ...] = ()
    """Lines drawn from the same samples, printed as they are; at most 50 columns wide each."""
    where: tuple[str, ...] = ()
    """Where the caller's time went, a line for each engine."""

    @property
    def word(self) -> str:
        """The verdict, or that there is none."""
        return self.verdict.word or NOT_JUDGED

    @property
    def number(self) -> str:
        """The number with its interval and unit; none is shown where evidence contradicts it."""
        if self.verdict.contradictions:
            return NOT_MEASURED
        found = self.verdict.comparison
        if found is None:
            return f"{'> ' if self.is_bound else ''}{quantity(self.estimate, self.verdict.unit)}"
        return measured(found.estimate, found.low, found.high, self.verdict.unit)

    @property
    def scope(self) -> str:
        """How far the verdict holds, and on how many replicates it rests."""
        found = self.verdict.comparison
        sample = counted(found.n, found.replicate) if found else ""
        return ", ".join(part for part in (self.verdict.scope, sample) if part)

    @property
    def facts(self) -> tuple[str, ...]:
        """What the number is counted over, what proves it, and how far it holds."""
        facts = (self.denominator.words, self.arms, self.evidence, self.scope)
        return tuple(fact for fact in facts if fact)

    @property
    def why(self) -> tuple[tuple[str, str], ...]:
        """(label, text) of what a reader of anything but a PASS must know."""
        if self.verdict.contradictions:
            return self._objections
        reason = None if self.verdict.word == "PASS" else self.verdict.reason
        lines = (("why", reason), ("to decide", self.verdict.would_decide))
        spent = (("where", text) for text in self.where)
        notes = (("note", text) for text in (*self.verdict.notes, *self.findings))
        return tuple((label, text) for label, text in (*lines, *spent, *notes) if text)

    @property
    def _objections(self) -> tuple[tuple[str, str], ...]:
        return tuple(
            (label, text)
            for each in self.verdict.contradictions
            for label, text in zip(
                ("why", "evidence", "remedy"),
                (each.reason, each.evidence, each.remedy),
                strict=True,
            )
            if text
        )


def render(
    rows: Sequence[Row],
    *,
    width: int,
    colour: bool = False,
    ascii: bool = False,  # noqa: A002 - the name a reader looks for; the builtin is not needed
    exit_status: int | None = None,
) -> str:
    """Give the table as text, without a newline at its end.

    ``width`` is the terminal's; under 64 columns the table is laid out for 64. With
    ``ascii`` every character is ASCII, for a terminal of another encoding than UTF-8.
    """
    page = _Page(max(width, _NARROWEST), colour=colour, ascii_only=ascii)
    lines = [*page.heading(), *page.body(rows), page.rule(), total(rows, exit_status)]
    return "\n".join(line.rstrip() for line in lines)


def total(rows: Iterable[Row], exit_status: int | None = None) -> str:
    """Count the words in one line: ``3 PASS, 1 REGRESS, 0 INCONCLUSIVE, 1 INVALID``."""
    seen = Counter(row.verdict.word for row in rows)
    parts = [f"{seen[word]} {word}" for word in WORDS]
    if seen[None]:
        parts.append(f"{seen[None]} {NOT_JUDGED}")
    status = "" if exit_status is None else f"; exit status {exit_status}"
    return ", ".join(parts) + status


def as_json(rows: Sequence[Row], exit_status: int | None = None) -> str:
    """Give the same content as one JSON document with ``rows``, ``total`` and ``exit_status``."""
    seen = Counter(row.word for row in rows)
    content = {
        "rows": [_builtins(row) for row in rows],
        "total": {word: seen[word] for word in (*WORDS, NOT_JUDGED)},
        "exit_status": exit_status,
    }
    return msgspec.json.format(msgspec.json.encode(content), indent=2).decode()


def markdown(rows: Sequence[Row], exit_status: int | None = None) -> str:
    """Give a Markdown table, a row per claim, with the total below; ends with a newline."""
    head = ("verdict", "gate", "number", "counted over", SAME_SAMPLES)
    lines = [_markdown_line(head), _markdown_line(["---"] * len(head))]
    lines += [_markdown_line(_markdown_cells(row)) for row in rows]
    return "\n".join([*lines, "", total(rows, exit_status), ""])


class _Page:
    """The table's geometry and paint: verdict, number, and what the number is counted over."""

    def __init__(self, width: int, *, colour: bool, ascii_only: bool) -> None:
        narrow, wide = _NUMBER_WIDTHS
        self.width = width
        self.number = min(wide, max(narrow, width * 3 // 10))
        self.facts = width - _MARGIN - self.number - _GAP
        self.colour = colour
        self.ascii_only = ascii_only

    def heading(self) -> Iterator[str]:
        yield from self.columns(["verdict"], ["number"], ["counted over"], paint=(_DIM,) * 3)
        yield self.rule()

    def rule(self) -> str:
        return self.painted(self.plain("─" * self.width), _DIM)

    def body(self, rows: Sequence[Row]) -> Iterator[str]:
        for index, (gate, claims) in enumerate(groupby(rows, key=lambda row: row.gate)):
            if index:
                yield ""
            for line in _wrapped_name(self.plain(gate), self.width):
                yield self.painted(line, _BOLD)
            told: set[str] = set()
            for _, alike in groupby(claims, key=lambda row: row.beside):
                for row in alike:
                    yield from self.row(row, told)
                    told |= {row.evidence, *row.where, *row.findings}
                yield from self.beside(row)
                yield from self.picture(row)

    def row(self, row: Row, told: AbstractSet[str]) -> Iterator[str]:
        """One claim; what was told of the same test's samples before is not told again."""
        tint = _COLOURS[row.verdict.word]
        number = row.number if len(row.number) <= self.number else row.number.replace(" [", "\n[")
        left = [*number.split("\n"), *self.wrap(row.verdict.claim, self.number, hang=2)]
        if row.verdict.comparison and not row.verdict.contradictions:
            left += [self.plain(strip(row.verdict.comparison, self.number))]
        facts = (fact for fact in row.facts if fact not in told)
        right = [line for fact in facts for line in self.wrap(fact, self.facts, hang=2)]
        yield from self.columns([row.word], left, right, paint=(tint, "", ""))
        for label, text in (each for each in row.why if each[1] not in told):
            yield from self.labelled(label, text)

    def beside(self, row: Row) -> Iterator[str]:
        """The same samples otherwise, in the same columns; none of samples that are INVALID."""
        if not row.beside or row.verdict.contradictions:
            return
        yield " " * _MARGIN + self.painted(SAME_SAMPLES, _DIM)
        for words, value in row.beside:
            cells = self.wrap(value, self.number), self.wrap(words, self.facts, hang=2)
            yield from self.columns([], *cells, paint=("", "", ""))

    def picture(self, row: Row) -> Iterator[str]:
        """Its lines as they are; none of samples that are INVALID."""
        if row.picture and not row.verdict.contradictions:
            yield from (" " * _MARGIN + self.plain(line) for line in row.picture)

    def columns(
        self, first: list[str], second: list[str], third: list[str], *, paint: Sequence[str]
    ) -> Iterator[str]:
        widths = (_VERDICT_WIDTH, self.number, self.facts)
        for cells in zip_longest(first, second, third, fillvalue=""):
            yield (" " * _GAP).join(
                self.painted(cell, code) + " " * (width - len(cell))
                for cell, width, code in zip(cells, widths, paint, strict=True)
            )

    def labelled(self, label: str, text: str) -> Iterator[str]:
        lines = self.wrap(text, self.width - _MARGIN - _LABEL)
        for name, line in zip_longest([label], lines, fillvalue=""):
            indent = " " * (_LABEL - len(name))
            yield f"{' ' * _MARGIN}{self.painted(name, _DIM)}{indent}{line}"

    def wrap(self, text: str, width: int, *, hang: int = 0) -> list[str]:
        """Wrap each line of a text, never between a number and its unit."""
        glued = _BEFORE_UNIT.sub(_GLUE, self.plain(text))
        lines = (
            textwrap.wrap(line, width, subsequent_indent=" " * hang, break_on_hyphens=False)
            for line in glued.splitlines()
        )
        return [line.replace(_GLUE, " ") for wrapped in lines for line in wrapped]

    def plain(self, text: str) -> str:
        if not self.ascii_only:
            return text
        return text.translate(_ASCII).encode("ascii", "backslashreplace").decode()

    def painted(self, text: str, code: str) -> str:
        if not self.colour or not code or not text.strip():
            return text
        return f"\x1b[{code}m{text}\x1b[0m"


def strip(comparison: Comparison, width: int) -> str:
    """Draw the interval ``[━●━]`` against the boundary ``│``.

    An end without bound is ``<`` or ``>``. Empty where all points are one.
    """
    known = [comparison.estimate, comparison.boundary, comparison.low, comparison.high]
    points = [point for point in known if point is not None]
    first, span = min(points), max(points) - min(points)
    if span == 0:
        return ""
    inner = width - 5

    def cell(point: float) -> int:
        return 2 + round((point - first) / span * inner)

    left = 0 if comparison.low is None else cell(comparison.low)
    right = width - 1 if comparison.high is None else cell(comparison.high)
    cells = ["─"] * width
    cells[left : right + 1] = ["━"] * (right + 1 - left)
    cells[left] = "<" if comparison.low is None else "["
    cells[right] = ">" if comparison.high is None else "]"
    cells[cell(comparison.boundary)] = "│"
    cells[cell(comparison.estimate)] = "●"
    return "".join(cells)


def _wrapped_name(name: str, width: int) -> Iterator[str]:
    """Break a node id where a reader would: after ``::``, ``/``, ``_``, ``-`` or before ``[``."""
    line = ""
    for piece in re.findall(r"\[?[^:/_\-\[]*(?:::|[:/_\-])?", name):
        for start in range(0, len(piece), width - 2):
            part = piece[start : start + width - 2]
            if len(line) + len(part) > width:
                yield line
                line = "  "
            line += part
    yield line


def _builtins(row: Row) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(row)
    found["number"], found["scope"] = row.number, row.scope
    found["denominator"] |= {"words": row.denominator.words, "formula": row.denominator.formula}
    found["beside"] = [{"words": words, "value": value} for words, value in row.beside]
    return found


def _markdown_cells(row: Row) -> list[str]:
    why = [f"{label}: {text}" for label, text in row.why]
    beside = [] if row.verdict.contradictions else [f"{v} {words}" for words, v in row.beside]
    return [
        row.word,
        f"`{row.gate.replace('`', chr(39))}`",
        _lines([row.number, row.verdict.claim]),
        _lines([*row.facts, *why]),
        _lines(beside),
    ]


def _lines(parts: Iterable[str]) -> str:
    return "<br>".join(part.replace("&", "&amp;").replace("<", "&lt;") for part in parts if part)


def _markdown_line(cells: Iterable[str]) -> str:
    escaped = (cell.replace("|", "\\|").replace("\n", "<br>") for cell in cells)
    return f"| {' | '.join(escaped)} |"
