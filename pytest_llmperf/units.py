"""How a bare number is printed: seconds, tokens per second, ratios, counts, shares and intervals.

What a number means is in ``denominator``; where it stands on the page is in ``report``.
Three significant digits, or all digits of the whole number where those are more.
"""

from __future__ import annotations

import math

NOT_MEASURED = "not measured"
"""The text of ``None``; it is never printed as zero."""

NO_BOUND = "no bound"
"""The end of an interval that the sample is too small to bound."""

_DIGITS = 3
_SECONDS_FROM = 0.1

COUNTED = frozenset({"asks", "requests"})
"""Units of whole numbers, which are shown as such."""


def real(value: object) -> float | None:
    """A finite number as a float; ``None`` for anything else, also for what no float can hold."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def seconds(value: float | None) -> str:
    """Seconds as ``0.123 s``, or as ``12.3 ms`` below a tenth of a second."""
    return quantity(value, "s")


def rate(value: float | None) -> str:
    """Tokens per second as ``86.2 tok/s``."""
    return quantity(value, "tok/s")


def ratio(value: float | None) -> str:
    """A ratio as ``1.62x``."""
    return quantity(value, "x")


def count(value: int | None) -> str:
    """A count as ``2,176``."""
    return NOT_MEASURED if value is None else f"{value:,}"


def counted(value: int, noun: str) -> str:
    """A count with its noun: ``30 turns``, ``1 turn``."""
    return f"{value:,} {noun}" if value == 1 else f"{value:,} {noun}s"


def share(part: int | None, whole: int | None) -> str:
    """A part of a whole as ``2,176 of 2,240``."""
    return f"{count(part)} of {count(whole)}"


def percent(fraction: float | None) -> str:
    """A fraction as ``14 %``, with a decimal below ten percent: ``1.5 %``, ``0.02 %``."""
    if fraction is None:
        return NOT_MEASURED
    value = 100 * fraction
    if round(value, 3) and not round(value, 1):
        return f"{value:.1g} %"  # what is small is not nothing
    short = f"{value:.1f}" if abs(round(value, 1)) < 10 else f"{value:,.0f}"  # noqa: PLR2004 - two digits
    return f"{short.removesuffix('.0')} %"


def quantile_name(p: float) -> str:
    """A quantile by its name: ``p50``, ``p99.9``."""
    return f"p{round(100 * p, 6):g}"


def probability(value: float | None) -> str:
    """A p-value as ``p = 0.012``; under a thousandth as ``p < 0.001``."""
    if value is None:
        return "no test"
    return "p < 0.001" if value < 0.001 else f"p = {value:.2g}"  # noqa: PLR2004 - as the text says


def quantity(value: float | None, unit: str) -> str:
    """A number with its unit: ``s``, ``tok/s``, ``x`` for a ratio, or any other word."""
    if value is None:
        return NOT_MEASURED
    if unit in COUNTED:
        return f"{value:,.0f} {unit}"
    scale, shown = _scaled(value, unit)
    return _joined(_digits(value * scale, _decimals(value * scale)), shown)


def interval(low: float | None, high: float | None, *, like: float | None, unit: str) -> str:
    """An interval as ``[1.50, 1.74]`` in the scale and decimals of the number ``like``."""
    scale, _ = _scaled(like, unit)
    decimals = _decimals(scale * (0.0 if like is None else like))
    ends = (NO_BOUND if end is None else _digits(end * scale, decimals) for end in (low, high))
    return f"[{', '.join(ends)}]"


def bounds(low: float | None, high: float | None, *, like: float | None, unit: str) -> str:
    """An interval that stands alone, with its unit: ``[1.50, 1.74] s``; a ratio's has none."""
    _, shown = _scaled(like, unit)
    ends = interval(low, high, like=like, unit=unit)
    return ends if shown == "x" else f"{ends} {shown}"


def measured(estimate: float | None, low: float | None, high: float | None, unit: str) -> str:
    """A number and its interval, alike in unit and decimals: ``0.182 s [0.171, 0.196]``."""
    number = quantity(estimate, unit)
    if estimate is None or (low is None and high is None):
        return number
    return f"{number} {interval(low, high, like=estimate, unit=unit)}"


def _scaled(value: float | None, unit: str) -> tuple[float, str]:
    """The factor and the unit in which a value is shown."""
    milli = unit == "s" and value is not None and _rounded(abs(value)) < _SECONDS_FROM
    return (1000.0, "ms") if milli and value else (1.0, unit)


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


def _decimals(value: float) -> int:
    """Decimals that show three significant digits after rounding (9.996 becomes 10.0)."""
    size = _rounded(abs(value))
    return _DIGITS - 1 if size == 0 else max(0, _DIGITS - 1 - math.floor(math.log10(size)))


def _digits(value: float, decimals: int) -> str:
    return f"{value:,.{decimals}f}"


def _joined(digits: str, unit: str) -> str:
    return f"{digits}x" if unit == "x" else f"{digits} {unit}"
