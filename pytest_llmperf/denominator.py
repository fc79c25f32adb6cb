"""What a number is counted over: clock, unit of work, cache state and streams, with its formula.

How the number is computed from a request is in ``sample``; what proves it is in ``proof``.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Clock = Literal["wall", "first_token", "decode"]
Unit = Literal["request", "output_token"]
Prefix = Literal["cold", "warm", "any"]

CLOCKS: dict[Clock, tuple[str, str]] = {
    "wall": ("t_last_token - t_sent", "wall clock as the caller sees it"),
    "first_token": ("t_first_token - t_sent", "wait before anything appears"),
    "decode": ("t_last_token - t_first_token", "decode only, prefill removed"),
}
"""Each clock's interval and what it is in words."""

PREFIXES: dict[Prefix, str] = {
    "cold": "cold prefix, proven",
    "warm": "cached prefix, proven",
    "any": "any prefix",
}
"""Each cache state a denominator may declare, in words."""


class Denominator(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The part of a number that says what it is counted over; equal or not comparable.

    ``unit="request"`` gives seconds per request, ``unit="output_token"`` tokens per second.
    """

    name: str
    clock: Clock
    unit: Unit
    prefix: Prefix
    streams: int = 1

    @property
    def formula(self) -> str:
        """The number's formula over the stamps, ``N`` output tokens, ``k`` in the first chunk."""
        interval = CLOCKS[self.clock][0]
        if self.unit == "request":
            return interval
        counted = "(N - k)" if self.clock == "decode" else "N"
        return f"{counted} / ({interval})"

    @property
    def higher_is_better(self) -> bool:
        """Tokens per second grow when things get better; seconds shrink."""
        return self.unit == "output_token"

    @property
    def unit_text(self) -> str:
        """The unit as printed beside the number."""
        return "s" if self.unit == "request" else "tok/s"

    @property
    def words(self) -> str:
        """The denominator as one line for a person."""
        per = "per request" if self.unit == "request" else "output tokens per second"
        stream = "1 stream" if self.streams == 1 else f"{self.streams} streams"
        return f"{CLOCKS[self.clock][1]}, {per}, {PREFIXES[self.prefix]}, {stream}"

    def differences(self, other: Denominator) -> list[str]:
        """Name the fields in which two denominators differ (their names do not count)."""
        fields = ("clock", "unit", "prefix", "streams")
        return [
            f"{field}: {getattr(self, field)!r} against {getattr(other, field)!r}"
            for field in fields
            if getattr(self, field) != getattr(other, field)
        ]


SINGLE_STREAM = Denominator(name="single_stream", clock="wall", unit="request", prefix="cold")
TIME_TO_FIRST_TOKEN = Denominator(
    name="time_to_first_token", clock="first_token", unit="request", prefix="cold"
)
DECODE_THROUGHPUT = Denominator(
    name="decode_throughput", clock="decode", unit="output_token", prefix="any"
)
CACHED_TURN = Denominator(name="cached_turn", clock="wall", unit="request", prefix="warm")

BUILT_IN: dict[str, Denominator] = {
    each.name: each for each in (SINGLE_STREAM, TIME_TO_FIRST_TOKEN, DECODE_THROUGHPUT, CACHED_TURN)
}
"""The named denominators that need one stream, by marker name."""
