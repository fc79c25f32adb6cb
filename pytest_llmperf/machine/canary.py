"""A small fixed computation that tells how quick this machine is today, engine aside.

What healthy sessions took is in ``history``; judging it is in ``proof``.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Literal

from pytest_llmperf.fitness import Canary

ROUNDS = 5
"""Repetitions; the median forgives two that somebody disturbed."""

STEPS = 60_000
"""Steps of the loop: a few milliseconds, so that a canary takes about 50 ms in all."""

COPIED_BYTES = 16 * 2**20


def sing(measurement_id: str, when: Literal["before", "after"], clock: Callable[[], int]) -> Canary:
    """Run the computation now, in about 50 ms on one core.

    :param clock: monotonic nanoseconds.
    """
    at_ns = clock()
    source, target = bytearray(COPIED_BYTES), bytearray(COPIED_BYTES)
    loops, copies = [], []
    for _ in range(ROUNDS):
        started = clock()
        _loop(STEPS)
        turned = clock()
        target[:] = source
        loops.append(turned - started)
        copies.append(clock() - turned)
    return Canary(
        measurement_id=measurement_id,
        when=when,
        at_ns=at_ns,
        loop_ns=round(median(loops)),
        copy_ns=round(median(copies)),
    )


def _loop(steps: int) -> int:
    state = 1
    for _ in range(steps):
        state = (state * 1_103_515_245 + 12_345) & 0x7FFFFFFF
    return state
