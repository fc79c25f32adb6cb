"""What a number is counted over: clock, unit of work, cache state and streams, with its formula.

How the number is computed from a request is in ``sample``; what proves it is in ``proof``.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Clock = Literal["wall", "first_token", "decode", "span", "switch"]
Unit = Literal["request", "output_token"]
Prefix = Literal["cold", "warm", "any"]
Arrival = Literal["closed", "constant", "poisson", "burst", "trace"]

CLOCKS: dict[Clock, tuple[str, str]] = {
    "wall": ("t_last_token - t_sent", "wall clock as the caller sees it"),
    "first_token": ("t_first_token - t_sent", "wait before anything appears"),
    "decode": ("t_last_token - t_first_token", "decode only, prefill removed"),
    "span": ("max t_last_token - min t_sent", "all streams together, from first to last"),
    "switch": (
        "first token of the next server - last good token of the first",
        "silence across a failover",
    ),
}
"""Each clock's interval and what it is in words. Where requests arrive by a schedule, ``t_due``
stands for ``t_sent``: waiting is counted from when a request was due."""

PREFIXES: dict[Prefix, str] = {
    "cold": "cold prefix, proven",
    "warm": "cached prefix, proven",
    "any": "any prefix",
}
"""Each cache state a denominator may declare, in words."""

ARRIVALS: dict[Arrival, str] = {
    "closed": "each stream sends its next request when its last is answered",
    "constant": "evenly spaced arrivals",
    "poisson": "Poisson arrivals",
    "burst": "all at once",
    "trace": "arrivals as they were recorded",
}
"""Each way in which requests arrive, in words."""


class Denominator(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The part of a number that says what it is counted over; equal or not comparable.

    ``unit="request"`` gives seconds per request, ``unit="output_token"`` tokens per second.
    """

    name: str
    clock: Clock
    unit: Unit
    prefix: Prefix
    streams: int | None = 1
    """Requests in flight at once; ``None`` where the arrivals decide."""
    arrival: Arrival = "closed"
    rate_rps: float | None = None
    """The offered rate in requests per second, where they arrive by a schedule."""
    ramp_s: float | None = None
    """Over how long a closed loop's streams start; ``None``: all at once, and the first request
    of each is left out."""

    @property
    def is_load(self) -> bool:
        """Whether requests overlap, or count together: then a turn is no replicate."""
        return self.arrival != "closed" or self.streams != 1 or self.clock == "span"

    @property
    def start(self) -> Literal["due_ns", "sent_ns"]:
        """The stamp from which the caller waits: when it sent, or when the schedule wanted it."""
        return "sent_ns" if self.arrival == "closed" else "due_ns"

    @property
    def formula(self) -> str:
        """The number's formula over the stamps, ``N`` output tokens, ``k`` in the first chunk."""
        interval = CLOCKS[self.clock][0]
        if self.arrival != "closed":
            interval = interval.replace("t_sent", "t_due")
        if self.unit == "request":
            return interval
        counted = {"decode": "(N - k)", "span": "sum(N)"}.get(self.clock, "N")
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
        if self.clock == "switch":
            streams = "1 stream" if self.streams == 1 else f"{self.streams} streams"
            return f"{CLOCKS[self.clock][1]}, per stream, {PREFIXES[self.prefix]}, {streams}"
        per = "per request" if self.unit == "request" else "output tokens per second"
        return f"{CLOCKS[self.clock][1]}, {per}, {PREFIXES[self.prefix]}, {self.load_words}"

    @property
    def load_words(self) -> str:
        """How many requests are in flight, how they arrive, and what becomes of the start."""
        if self.arrival == "burst":
            noun = "request" if self.streams == 1 else "requests"
            return f"{self.streams or 'all'} {noun} at once"
        if self.arrival == "trace":
            return ARRIVALS[self.arrival]
        if self.arrival != "closed":
            return f"{ARRIVALS[self.arrival]} at {self.rate_rps or 0:g} requests a second"
        if self.streams is None:
            return "streams as declared"
        if self.streams == 1:
            return "1 stream"
        ramp = "first wave left out" if self.ramp_s is None else f"started over {self.ramp_s:g} s"
        return f"{self.streams} streams, {ramp}"

    def differences(self, other: Denominator) -> list[str]:
        """Name the fields in which two denominators differ (their names do not count)."""
        fields = ("clock", "unit", "prefix", "streams", "arrival", "rate_rps", "ramp_s")
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
AGGREGATE_THROUGHPUT = Denominator(
    name="aggregate_throughput", clock="span", unit="output_token", prefix="cold", streams=None
)
BURST = Denominator(
    name="burst", clock="wall", unit="request", prefix="cold", streams=None, arrival="burst"
)
FAILOVER = Denominator(name="failover", clock="switch", unit="request", prefix="any", streams=None)
"""Not among the built-in ones: no turn has a number of its own under it."""

BUILT_IN: dict[str, Denominator] = {
    each.name: each
    for each in (
        SINGLE_STREAM,
        TIME_TO_FIRST_TOKEN,
        DECODE_THROUGHPUT,
        CACHED_TURN,
        AGGREGATE_THROUGHPUT,
        BURST,
    )
}
"""The named denominators, by marker name."""
