"""Pictures of a queue and of a ladder: lines of text for the report, and SVG for the evidence.

What they show is computed in ``burst`` and ``ladder``; the files are written by ``evidence``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

from pytest_llmperf.load.burst import Backlog
from pytest_llmperf.load.ladder import Rung, Step
from pytest_llmperf.units import quantity

COLOURS = ("#1f4e9c", "#b3261e", "#2e7d32", "#8a8a8a")
_BLOCKS = "▁▂▃▄▅▆▇█"
_COLUMNS = 48
_BAR = 10
_WIDTH, _HEIGHT = 640, 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 150, 40, 45


def queue_lines(backlog: Backlog) -> tuple[str, ...]:
    """The server's queue over time as bars of text; blank where it was not read."""
    most = backlog.most_waiting
    if most is None or len(backlog.depths) < 2:  # noqa: PLR2004 - one reading is no course
        return ()
    first_s, last_s = backlog.depths[0].at_s, backlog.depths[-1].at_s
    width_s = (last_s - first_s) / _COLUMNS or 1.0
    columns: list[int | None] = [None] * _COLUMNS
    for each in backlog.depths:
        place = min(_COLUMNS - 1, int((each.at_s - first_s) / width_s))
        columns[place] = max(columns[place] or 0, each.waiting)
    end = quantity(last_s, "s")
    return (
        f"waiting at the server, 0 to {most.waiting:,}:",
        "".join(_block(number, most.waiting) for number in columns),
        f"{quantity(first_s, 's'):<{_COLUMNS - len(end)}}{end}",
    )


def _block(number: int | None, most: int) -> str:
    if number is None:
        return " "
    return _BLOCKS[math.ceil((len(_BLOCKS) - 1) * number / most) if most else 0]


def ladder_lines(steps: Sequence[Step], knee: Rung | None) -> tuple[str, ...]:
    """The ladder as a table: all streams together, each stream, first token, and bars."""
    most = max((step.rung.aggregate_tps for step in steps), default=1.0)
    lines = [f"{'streams':>7} {'together':>11} {'each':>11} {'1st token':>9}"]
    for step in steps:
        if step.first_try is not None:
            lines.append(f"{_cells(step.first_try)} first try, slower than a greater rung")
        bar = "█" * max(1, round(_BAR * step.rung.aggregate_tps / most))
        is_knee = knee is not None and step.rung.streams == knee.streams
        lines.append(f"{_cells(step.rung)} {bar}{' knee' if is_knee else ''}")
    return tuple(lines)


def _cells(rung: Rung) -> str:
    numbers = (quantity(rung.aggregate_tps, "tok/s"), quantity(rung.per_stream_tps, "tok/s"))
    first = quantity(rung.first_token_s, "s")
    return f"{rung.streams:>7} {numbers[0]:>11} {numbers[1]:>11} {first:>9}"


def queue_svg(backlog: Backlog, title: str) -> str:
    """Requests waiting and running at the server over the seconds since the burst was due."""
    times = [each.at_s for each in backlog.depths]
    curves = {
        "waiting": [float(each.waiting) for each in backlog.depths],
        "running": [float(each.running) for each in backlog.depths],
    }
    return curves_svg(title, times, curves, axis="seconds since the burst was due")


def ladder_svg(steps: Sequence[Step], knee: Rung | None, title: str) -> str:
    """Tokens per second of all streams together and of each, over a doubling axis of streams."""
    rungs = [step.rung for step in steps]
    curves = {
        "together, tok/s": [each.aggregate_tps for each in rungs],
        "each, tok/s": [each.per_stream_tps for each in rungs],
    }
    places = [math.log2(each.streams) for each in rungs]
    names = {math.log2(each.streams): str(each.streams) for each in rungs}
    mark = None if knee is None else (math.log2(knee.streams), "knee")
    return curves_svg(title, places, curves, axis="streams at once", names=names, mark=mark)


def curves_svg(
    title: str,
    across: Sequence[float],
    curves: Mapping[str, Sequence[float]],
    *,
    axis: str,
    names: Mapping[float, str] | None = None,
    mark: tuple[float, str] | None = None,
) -> str:
    """Draw curves over one axis, from 0 up; ``names`` are the axis's ticks, ``mark`` a line."""
    frame = _Frame(across, curves)
    ticks = names or {x: quantity(x, "s") for x in _few(across)}
    parts = [text(_LEFT, 22, title, "start", size=15), *frame.grid()]
    parts += [text(frame.x(x), _TOP + frame.high + 17, name, "middle") for x, name in ticks.items()]
    parts.append(text(_LEFT + frame.wide / 2, _HEIGHT - 8, axis, "middle"))
    for (name, heights), colour in zip(curves.items(), COLOURS, strict=False):
        parts += frame.curve(across, name, heights, colour)
    if mark is not None:
        parts.append(f'<path d="M{frame.x(mark[0]):.1f} {_TOP}v{frame.high}" stroke="#888"/>')
        parts.append(text(frame.x(mark[0]) + 4, _TOP + 10, mark[1], "start"))
    return page(_WIDTH, _HEIGHT, parts)


class _Frame:
    """Where a point of the curves lies on the page."""

    def __init__(self, across: Sequence[float], curves: Mapping[str, Sequence[float]]) -> None:
        self.wide, self.high = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
        self._from = min(across, default=0.0)
        self._span = (max(across, default=1.0) - self._from) or 1.0
        self._most = max((y for each in curves.values() for y in each), default=0.0) or 1.0

    def x(self, place: float) -> float:
        return _LEFT + self.wide * (place - self._from) / self._span

    def y(self, height: float) -> float:
        return _TOP + self.high * (1 - height / self._most)

    def grid(self) -> list[str]:
        parts = []
        for share in (0, 0.25, 0.5, 0.75, 1):
            y = self.y(share * self._most)
            parts.append(f'<path d="M{_LEFT} {y:.1f}h{self.wide}" stroke="#ddd"/>')
            parts.append(text(_LEFT - 6, y + 4, f"{share * self._most:.4g}", "end"))
        return parts

    def curve(
        self, across: Sequence[float], name: str, heights: Sequence[float], colour: str
    ) -> list[str]:
        if not heights:
            return []
        points = " ".join(
            f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in zip(across, heights, strict=True)
        )
        end_x, end_y = self.x(across[-1]), self.y(heights[-1])
        return [
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>',
            text(end_x + 8, end_y + 4, name, "start", colour=colour),
        ]


def text(
    x: float, y: float, words: str, anchor: str, *, size: int = 12, colour: str = "#222"
) -> str:
    """One line of words at a point."""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" '
        f'fill="{colour}">{escape(words)}</text>'
    )


def page(width: int, height: int, parts: Sequence[str]) -> str:
    """A whole SVG document on white."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif">'
    )
    return "\n".join(
        [head, f'<rect width="{width}" height="{height}" fill="#fff"/>', *parts, "</svg>\n"]
    )


def _few(across: Sequence[float]) -> list[float]:
    """Five places of an axis, its ends included."""
    if not across:
        return []
    first, span = across[0], across[-1] - across[0]
    return [first + span * share for share in (0, 0.25, 0.5, 0.75, 1)] if span else [first]
