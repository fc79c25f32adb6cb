"""When requests are due: absolute schedules, as nanoseconds after the start of a window of load.

Pure: no clock, no network. What is sent is in ``plan``; keeping to a schedule is in
``many_streams``. Absolute means that a request that went out late makes no later one late.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from random import Random

from pytest_llmperf.denominator import Denominator
from pytest_llmperf.errors import UsageError

_NS = 1_000_000_000


def constant(requests: int, rate_rps: float) -> tuple[int, ...]:
    """Arrivals evenly spaced at a rate; the first is due at 0.

    Formula: ``due_i = i / rate``, each rounded on its own.
    """
    return tuple(round(number * _NS / rate_rps) for number in range(requests))


def poisson(requests: int, rate_rps: float, seed: int) -> tuple[int, ...]:
    """Arrivals of a Poisson process of a mean rate; the first is due at 0.

    Gaps are exponential with mean ``1 / rate``. The same seed gives the same schedule.
    """
    drawn = Random(seed)  # noqa: S311 - a repeatable schedule, no secret
    gaps = (drawn.expovariate(rate_rps) for _ in range(requests - 1))
    return tuple(round(at_s * _NS) for at_s in accumulate(gaps, initial=0.0))[:requests]


def at_once(requests: int) -> tuple[int, ...]:
    """Everything is due at 0."""
    return (0,) * requests


def starts(streams: int, ramp_s: float | None) -> tuple[int, ...]:
    """When each stream of a closed loop sends its first request.

    Formula: ``start_i = ramp * i / (streams - 1)``; all at 0 without a ramp.
    """
    if ramp_s is None or streams == 1:
        return at_once(streams)
    return tuple(round(ramp_s * _NS * number / (streams - 1)) for number in range(streams))


def recorded(came_s: Sequence[float] | None, requests: int) -> tuple[int, ...]:
    """Arrivals as they were; the first is due at 0.

    :raises UsageError: the workload has no times, or fewer than there are requests to send.
    """
    if came_s is None or len(came_s) < requests:
        known = "none" if came_s is None else f"{len(came_s)}"
        raise UsageError(
            "arrival='trace' has no time for each of its requests.",
            f"{requests} requests are to be sent in one window, and the workload has {known}.",
            "Give Traffic whose file has timestamps, and plan no more turns a window than it has.",
        )
    return tuple(round(at_s * _NS) for at_s in came_s[:requests])


def arrivals(
    denominator: Denominator, requests: int, seed: int, came_s: Sequence[float] | None = None
) -> tuple[int, ...] | None:
    """When each request is due; ``None`` in a closed loop, where the answers decide.

    :param came_s: when the requests of recorded traffic came, in seconds after the first.
    :raises UsageError: they are to arrive as recorded, and too few times are known.
    """
    if denominator.arrival == "trace":
        return recorded(came_s, requests)
    if denominator.arrival == "burst":
        return at_once(requests)
    if denominator.rate_rps is None:
        return None
    if denominator.arrival == "constant":
        return constant(requests, denominator.rate_rps)
    return poisson(requests, denominator.rate_rps, seed)
