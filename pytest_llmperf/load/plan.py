"""Which requests each window of load sends, and when they are due: primes, a first wave, turns.

Pure: no clock, no network. Turns that follow one another are in ``plan``; sending is in
``measure``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping

import msgspec

from pytest_llmperf.denominator import Denominator
from pytest_llmperf.load import schedule
from pytest_llmperf.plan import Step
from pytest_llmperf.planned import PlannedRequest
from pytest_llmperf.record import Role
from pytest_llmperf.traffic import Traffic
from pytest_llmperf.workload import Conversations, Prompts, Workload, nonce


class LoadWindow(msgspec.Struct, frozen=True, kw_only=True):
    """One window of load on one arm; before and after it the server is idle."""

    arm: str
    block: int
    primes: tuple[Step, ...]
    """Sent one after another before the load, so that warm turns find their prefix."""
    steps: tuple[Step, ...]
    """In the order in which they are sent: a first wave that is left out, then the turns."""
    starts: tuple[int, ...] = ()
    """When each stream of a closed loop starts, in nanoseconds after the window began."""
    due: tuple[int, ...] | None = None
    """When each step is due; ``None`` in a closed loop, where the answers decide."""


def load_windows(
    workload: Workload,
    denominators: Mapping[str, Denominator],
    *,
    turns: int,
    windows: int,
    warmup: int,
    seed: int,
) -> list[LoadWindow]:
    """Plan one measurement: a window of warm-up for each arm, then the windows of each block.

    With two arms each block is a window of either, in alternating order, so that a steady drift
    cancels; both arms send the same prompts at the same times.

    :param turns: turns for each arm, a multiple of ``windows``.
    :param warmup: requests before, for each arm, at the load that is measured; 0 for none.
    :param seed: of nonces and schedules; two runs with one seed send the same bytes.
    """
    planner = _Planner(workload, turns // windows, seed)
    planned = []
    if warmup:
        planned = [planner.warmup(arm, of, warmup) for arm, of in denominators.items()]
    for block in range(windows):
        arms = list(denominators.items())
        ordered = reversed(arms) if block % 2 else arms
        planned += [planner.window(arm, of, block) for arm, of in ordered]
    return planned


class _Planner:
    """Hands out prompts so that no request repeats what an earlier one left cached."""

    def __init__(self, workload: Workload, turns: int, seed: int) -> None:
        self._workload = workload
        self._turns = turns
        self._seed = seed

    def warmup(self, arm: str, of: Denominator, requests: int) -> LoadWindow:
        """At least one request for each stream, so that the load's batch sizes were seen."""
        several = max(requests, (of.streams or 1) if of.arrival == "closed" else 1)
        return self._filled(arm, of, 0, ["warmup"] * several, life="warmup")

    def window(self, arm: str, of: Denominator, block: int) -> LoadWindow:
        """The block's window on one arm."""
        has_wave = of.arrival == "closed" and of.ramp_s is None and (of.streams or 1) > 1
        wave: list[Role] = ["ramp"] * (of.streams or 0) if has_wave else []
        turns: list[Role] = ["turn"] * self._turns
        return self._filled(arm, of, block, wave + turns, life=f"window {block}")

    def _filled(
        self, arm: str, of: Denominator, block: int, roles: list[Role], *, life: str
    ) -> LoadWindow:
        steps = tuple(
            Step(arm=arm, role=role, block=block, request=request, after=after)
            for index, role in enumerate(roles)
            for request, after in [self._request(of, index, life)]
        )
        role: Role = "warmup" if roles[0] == "warmup" else "prime"
        came_s = self._workload.arrivals_s if isinstance(self._workload, Traffic) else None
        paced = schedule.arrivals(of, len(steps), _drawn(self._seed, life), came_s)
        return LoadWindow(
            arm=arm,
            block=block,
            primes=tuple(_primes(steps, role)),
            steps=steps,
            starts=schedule.starts(of.streams or 1, of.ramp_s) if paced is None else (),
            due=paced,
        )

    def _request(
        self, of: Denominator, index: int, life: str
    ) -> tuple[PlannedRequest, PlannedRequest | None]:
        if isinstance(self._workload, Conversations):
            return self._of_conversation(self._workload, of, index, life)
        return self._of_prompts(self._workload, of, index, life)

    def _of_conversation(
        self, workload: Conversations, of: Denominator, index: int, life: str
    ) -> tuple[PlannedRequest, PlannedRequest | None]:
        """As many conversations live at once as there are streams, each with its own nonce.

        One whose branches are used up lives again under another nonce.
        """
        many = of.streams or len(workload.histories)
        if of.arrival == "burst":
            many = len(workload.histories)
        conversation = index % many
        again, branch = divmod(index // many, len(workload.branches) - 1)
        history = conversation % len(workload.histories)
        if of.prefix == "cold":
            fresh = nonce(self._seed, f"cold/{life}", index)
            return workload.turn(history, branch + 1, fresh), None
        live = nonce(self._seed, f"live/{life}/{conversation}", again)
        return workload.turn(history, branch + 1, live), workload.prime(history, live)

    def _of_prompts(
        self, workload: Prompts, of: Denominator, index: int, life: str
    ) -> tuple[PlannedRequest, PlannedRequest | None]:
        if of.prefix == "any":
            return workload.plain(index), None
        if of.prefix == "cold":
            return workload.cold(index, nonce(self._seed, f"cold/{life}", index)), None
        live = workload.cold(index, nonce(self._seed, f"live/{life}", index))
        return live, msgspec.structs.replace(live, max_tokens=1)


def _primes(steps: tuple[Step, ...], role: Role) -> Iterator[Step]:
    """What must be in the cache before the window, each once."""
    known = set()
    for step in steps:
        if step.after is not None and step.after.digest() not in known:
            known.add(step.after.digest())
            yield Step(arm=step.arm, role=role, block=step.block, request=step.after)


def _drawn(seed: int, life: str) -> int:
    """A seed of its own for each window's schedule, alike in both arms."""
    return int.from_bytes(hashlib.sha256(f"{seed}/schedule/{life}".encode()).digest()[:8])
