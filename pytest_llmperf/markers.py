"""Every marker of this plugin as a frozen record, and what does not go together in one.

The marker's keywords are the record's fields. Which markers go together on a test, and what they
come to, is in ``declaration``.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from pytest_llmperf.denominator import Clock, Prefix, Unit

WINDOWS = 5
"""Windows of load on one boot, where the marker states none."""

FEWEST_A_STREAM = 2
"""Turns of each stream in one window: with fewer, starting and ending are all that there is."""

Turns = Annotated[int, Meta(ge=1, le=100_000)]
Share = Annotated[float, Meta(gt=0, le=1)]
ShareOrNone = Annotated[float, Meta(ge=0, le=1)]
Change = Annotated[float, Meta(gt=0, lt=10)]
Streams = Annotated[int, Meta(ge=1, le=4096)]
Windows = Annotated[int, Meta(ge=1, le=100)]
Rate = Annotated[float, Meta(ge=0.001, le=100_000)]
Ramp = Annotated[float, Meta(gt=0, le=600)]
Fault = Literal["killed", "frozen"]
Paced = Literal["closed", "constant", "poisson", "trace"]
Factor = Literal["prefix", "speculation", "profile"]

FACTORS: dict[Factor, str] = {
    "prefix": "a cached prefix against a cold one, on one engine",
    "speculation": "with the drafter against without, on two engines",
    "profile": "one configuration against another, on two engines",
}
"""The one thing in which the arms of a speed-up may differ, in words."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What every denominator marker may say: how much is measured, and what must be seen."""

    not_taken: ClassVar[frozenset[str]] = frozenset()
    """Those of these keywords that mean nothing to a marker, which therefore refuses them."""

    turns: Turns = 30
    """Requests measured for each arm, warm-up excluded."""
    warmup: Annotated[int, Meta(ge=0, le=1000)] = 2
    """Requests sent and recorded before, for each arm, and not used."""
    tolerance: Change | None = None
    """A slow-down up to this share is no regression; ``None``: the profile's."""
    detect: Change | None = None
    """A slow-down of this share must be seen; ``None``: the profile's."""
    min_acceptance: ShareOrNone = 0.15
    """Accepted over drafted tokens below which a declared drafter counts as mismatched; with 0
    drafting alone proves it, as where answers are sampled and hardly a draft can be accepted."""


class SingleStream(Plan, frozen=True, kw_only=True):
    """Wall-clock latency of one request, as its caller sees it; cold, proven."""


class TimeToFirstToken(Plan, frozen=True, kw_only=True):
    """The wait before anything appears, with the prefix cold or warm as declared."""

    prefix: Prefix = "cold"
    min_cached_share: Share | None = None


class DecodeThroughput(Plan, frozen=True, kw_only=True):
    """Output tokens per second once decoding, prefill removed."""

    prefix: Prefix = "any"
    min_cached_share: Share | None = None


class Load(Plan, frozen=True, kw_only=True):
    """What a marker may say of requests that overlap: how many at once, or how they arrive."""

    streams: Streams | None = None
    """Streams of a closed loop, in which each sends its next request when its last is answered;
    ``None`` is one stream, and the only choice where requests arrive by a schedule."""
    arrival: Paced = "closed"
    """``constant`` and ``poisson`` send by an absolute schedule, whatever has been answered, and
    ``trace`` by the times at which traffic of your own came."""
    rate_rps: Rate | None = None
    """Requests per second that the schedule offers."""
    ramp_s: Ramp | None = None
    """Over how long the streams of a closed loop start; ``None``: at once, and the first request
    of each is left out of the numbers."""
    windows: Windows | None = None
    """Windows of load into which the turns are divided, 5 if not said: with requests that
    overlap, the window is what is repeated on one boot, never the turn."""

    @property
    def is_load(self) -> bool:
        """Whether requests overlap."""
        return self.arrival != "closed" or (self.streams or 1) > 1


class CachedTurn(Load, frozen=True, kw_only=True):
    """Wall clock of the next turn of a live conversation; warm, proven."""

    min_cached_share: Share | None = None


class AggregateThroughput(Load, frozen=True, kw_only=True):
    """Output tokens per second over all streams together, from the first to the last."""

    turns: Turns = 160
    prefix: Prefix = "cold"
    min_cached_share: Share | None = None

    @property
    def is_load(self) -> bool:
        """Always: a window has one number even with one stream."""
        return True


class Burst(Plan, frozen=True, kw_only=True):
    """What happens when so many requests arrive at once; latency counts from when they did."""

    turns: Turns = msgspec.field(default=500, name="requests")
    prefix: Prefix = "cold"
    min_cached_share: Share | None = None


class Ladder(Plan, frozen=True, kw_only=True):
    """The same work at more and more streams: aggregate throughput rung by rung, and the knee."""

    streams: Annotated[tuple[Streams, ...], Meta(min_length=2)] = (1, 2, 4, 8, 16, 32, 64)
    """Streams of each rung, rising; each rung is an aggregate throughput of its own."""
    turns: Turns = FEWEST_A_STREAM
    """Turns of each stream at each rung, its first request left out."""
    prefix: Prefix = "cold"
    min_cached_share: Share | None = None


class Failover(Plan, frozen=True, kw_only=True):
    """A server fails under load and the next takes over: silence, losses, who answered."""

    not_taken = frozenset({"tolerance", "detect", "min_acceptance"})

    turns: Annotated[int, Meta(ge=1, le=10_000)] = msgspec.field(default=12, name="requests")
    """Requests that the next server must have answered before the load ends."""
    streams: Streams = 4
    fault: Fault = "killed"
    """``killed`` ends the first server's processes (SIGKILL), ``frozen`` stops them (SIGSTOP) and
    lets them go on (SIGCONT) when the load is over."""
    stall_s: Annotated[float, Meta(gt=0, le=600)] = 5.0
    """Seconds without an event after which a request is sent to the next server."""


class General(Load, frozen=True, kw_only=True):
    """Your own combination of clock, unit of work, cache state and streams."""

    clock: Clock
    unit: Unit = "request"
    prefix: Prefix = "any"
    min_cached_share: Share | None = None

    @property
    def is_load(self) -> bool:
        """Whether requests overlap, or are counted all together."""
        return self.clock == "span" or self.arrival != "closed" or (self.streams or 1) > 1


class SpeedUp(Plan, frozen=True, kw_only=True):
    """The ratio of one denominator under two arms that differ in one declared factor."""

    of: Literal["single_stream", "time_to_first_token", "decode_throughput", "cached_turn"]
    factor: Factor
    min_cached_share: Share | None = None


class Factorial(Plan, frozen=True, kw_only=True):
    """Two mechanisms at once, each on and off: what each gains, and how their gains combine."""

    of: Literal["single_stream", "time_to_first_token", "decode_throughput"]
    factors: tuple[Factor, Factor] = ("speculation", "prefix")
    min_cached_share: Share | None = None


MARKERS: dict[str, type[Plan]] = {
    "single_stream": SingleStream,
    "time_to_first_token": TimeToFirstToken,
    "decode_throughput": DecodeThroughput,
    "cached_turn": CachedTurn,
    "aggregate_throughput": AggregateThroughput,
    "burst": Burst,
    "ladder": Ladder,
    "failover": Failover,
    "speedup": SpeedUp,
    "factorial": Factorial,
    "denominator": General,
}
"""Every marker of this plugin and the record of its keywords."""


def keywords(kind: type[Plan]) -> dict[str, Any]:
    """Give the keywords that a marker takes, each with its field of the record, in order."""
    fields = msgspec.structs.fields(kind)
    return {each.encode_name: each for each in fields if each.name not in kind.not_taken}


def load_problems(plan: Plan) -> list[str]:
    """What does not go together in a marker whose requests may overlap."""
    if isinstance(plan, Ladder):
        return _ladder_problems(plan)
    if not isinstance(plan, Load):
        return []
    if isinstance(plan, General) and plan.clock == "switch":
        return ["clock='switch' runs across two servers. Mark the test with failover(...)."]
    if isinstance(plan, General) and plan.clock == "span" and plan.unit != "output_token":
        return ["clock='span' counts output tokens. Say unit='output_token'."]
    found = _closed_problems(plan) if plan.arrival == "closed" else _paced_problems(plan)
    return found or _window_problems(plan)


def _ladder_problems(plan: Ladder) -> list[str]:
    problems = []
    if list(plan.streams) != sorted(set(plan.streams)):
        problems.append(
            f"streams={plan.streams!r} do not rise. Write {tuple(sorted(set(plan.streams)))!r}."
        )
    if plan.turns < FEWEST_A_STREAM:
        problems.append(
            f"turns={plan.turns} for each stream: with fewer than {FEWEST_A_STREAM} the load is "
            "never steady."
        )
    return problems


def _closed_problems(plan: Load) -> list[str]:
    problems = []
    if plan.rate_rps is not None:
        problems.append(
            f"rate_rps={plan.rate_rps:g} in a closed loop, which sends when it is answered. "
            "Say arrival='constant' or arrival='poisson', or leave the rate out."
        )
    if isinstance(plan, AggregateThroughput) and plan.streams is None:
        problems.append(
            "streams is missing: say how many requests are in flight at once, "
            "or arrival and rate_rps."
        )
    if not plan.is_load:
        problems += [
            f"{name}={value:g} with one stream: turns follow one another. Say streams, or leave "
            f"{name} out."
            for name, value in (("ramp_s", plan.ramp_s), ("windows", plan.windows))
            if value is not None
        ]
    return problems


def _paced_problems(plan: Load) -> list[str]:
    problems = []
    if plan.arrival == "trace" and plan.rate_rps is not None:
        problems.append(
            f"rate_rps={plan.rate_rps:g} with arrival='trace': the traffic's own times decide. "
            "Leave rate_rps out."
        )
    elif plan.arrival != "trace" and plan.rate_rps is None:
        problems.append(
            f"arrival={plan.arrival!r} without a rate. Say rate_rps, the requests a second that "
            "are offered."
        )
    if plan.streams is not None:
        problems.append(
            f"streams={plan.streams} with arrival={plan.arrival!r}: the schedule decides how many "
            "are in flight. Leave streams out."
        )
    if plan.ramp_s is not None:
        problems.append(
            f"ramp_s={plan.ramp_s:g} with arrival={plan.arrival!r}: a schedule has no streams to "
            "start one by one. Leave ramp_s out."
        )
    return problems


def _window_problems(plan: Load) -> list[str]:
    """Whether each window holds turns enough, all windows alike."""
    if not plan.is_load:
        return []
    windows, streams = plan.windows or WINDOWS, plan.streams or 1
    each, left = divmod(plan.turns, windows)
    if left:
        uneven = f"turns={plan.turns} cannot be divided into {windows} windows of equal size."
        return [f"{uneven} Plan {windows * (each + 1)}."]
    if each < FEWEST_A_STREAM * streams:
        few = f"turns={plan.turns} in {windows} windows of {streams} streams are {each} a window:"
        why = f"each stream needs {FEWEST_A_STREAM}, or the load is never steady."
        return [f"{few} {why} Plan at least {FEWEST_A_STREAM * streams * windows}."]
    return []
