"""Small pictures as SVG text: lines over an axis of effects, and bars of rates.

What they show is computed in ``promises`` and ``peers``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytest_llmperf.load.picture import page, text

_COLOURS = ("#b3261e", "#2e7d32", "#8a8a8a", "#1f4e9c")
_WIDTH, _HEIGHT = 640, 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 60, 150, 40, 45
_BAR = 26
_LABEL = 300


def lines(
    title: str, across: Sequence[float], curves: Mapping[str, Sequence[float]], axis: str
) -> str:
    """Draw shares between 0 and 1 over a numeric axis, given in percent."""
    wide, high = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
    span = across[-1] - across[0]

    def at(x: float, y: float) -> tuple[float, float]:
        return _LEFT + wide * (x - across[0]) / span, _TOP + high * (1 - y)

    parts = [text(_LEFT, 22, title, "start", size=15)]
    for share in (0, 0.25, 0.5, 0.75, 1):
        x, y = at(across[0], share)
        parts.append(f'<path d="M{x:.1f} {y:.1f}h{wide}" stroke="#ddd"/>')
        parts.append(text(x - 6, y + 4, f"{100 * share:.0f} %", "end"))
    parts += [text(at(x, 0)[0], _TOP + high + 17, f"{x:g}", "middle") for x in across[::2]]
    parts.append(text(_LEFT + wide / 2, _HEIGHT - 8, axis, "middle"))
    for (name, shares), colour in zip(curves.items(), _COLOURS, strict=False):
        points = " ".join(
            f"{x:.1f},{y:.1f}" for x, y in (at(*p) for p in zip(across, shares, strict=True))
        )
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>'
        )
        x, y = at(across[-1], shares[-1])
        parts.append(text(x + 8, y + 4, name, "start", colour=colour))
    return page(_WIDTH, _HEIGHT, parts)


def bars(title: str, rates: Mapping[str, float], limit: float | None) -> str:
    """Draw rates between 0 and 1 as bars, with a line at a limit."""
    wide, height = _WIDTH - _LABEL - 70, _TOP + _BAR * len(rates) + 15
    most = max([*rates.values(), limit or 0, 1e-9])
    parts = [text(10, 22, title, "start", size=15)]
    for i, (name, rate) in enumerate(rates.items()):
        y, long = _TOP + i * _BAR, wide * rate / most
        parts.append(text(_LABEL - 8, y + 16, name, "end"))
        parts.append(
            f'<rect x="{_LABEL}" y="{y + 4}" width="{long:.1f}" height="{_BAR - 8}" '
            f'fill="{_COLOURS[3] if i == 0 else _COLOURS[2]}"/>'
        )
        parts.append(text(_LABEL + long + 6, y + 16, f"{100 * rate:.2f} %", "start"))
    if limit is not None:
        x = _LABEL + wide * limit / most
        high = _BAR * len(rates)
        parts.append(f'<path d="M{x:.1f} {_TOP}v{high}" stroke="{_COLOURS[0]}"/>')
    return page(_WIDTH, height, parts)
