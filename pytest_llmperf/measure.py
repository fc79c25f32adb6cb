"""Carrying out one measurement: prime, warm up, read counters, time turns, read counters again.

It leaves records and returns their id, never a number. The order of requests is in ``plan``, one
request in ``client``, what the records mean in ``proof`` and ``sample``.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import msgspec

from pytest_llmperf import counters, record
from pytest_llmperf.client import Client
from pytest_llmperf.declaration import Declaration
from pytest_llmperf.errors import EngineError, UsageError
from pytest_llmperf.plan import Step, steps
from pytest_llmperf.planned import PlannedRequest
from pytest_llmperf.proof import expected_hits
from pytest_llmperf.server.launch import RunningEngine
from pytest_llmperf.workload import Workload

GIVE_UP_AFTER = 3
"""Failed requests in a row after which the rest of a measurement is not sent."""

SETTLE_S = 3.0
"""How long the server's counters may take to show what it has already answered."""


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """One arm's engine while it is measured: the running engine and a client of it."""

    arm: record.Arm
    running: RunningEngine
    client: Client


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What a measurement needs from the session, and nothing more."""

    add: Callable[[record.Record], None]
    """Takes each record as it happens."""
    clock: Callable[[], int]
    """Monotonic nanoseconds."""
    sleep: Callable[[float], None]
    tell: Callable[[str], None]
    """Takes a line of progress for a person."""
    seed: int
    """Of the nonces of this run."""
    watching: Callable[[str], AbstractContextManager[None]] = lambda _: nullcontext()
    """Watches the machine around the measured window of the measurement with this id."""


def measure(
    start: record.Measurement,
    declaration: Declaration,
    targets: Sequence[Target],
    workload: Workload,
    around: Surroundings,
) -> str:
    """Carry out one measurement and return its id.

    Whatever goes wrong at the server is left in the records; the caller judges them.

    :raises UsageError: the plan does not fit the engine (context or cache too small).
    """
    work = _Work(start, declaration, {each.arm.name: each for each in targets}, around)
    planned = work.plan(workload)
    around.add(start)
    work.carry_out(planned)
    return start.measurement_id


class _Work:
    """One measurement while it runs."""

    def __init__(
        self,
        start: record.Measurement,
        declaration: Declaration,
        targets: Mapping[str, Target],
        around: Surroundings,
    ) -> None:
        self._start = start
        self._declaration = declaration
        self._targets = targets
        self._around = around
        self._position = itertools.count()
        self._failed_in_a_row = 0
        self._finished_before: dict[str, float | None] = {}
        self._sent_inside: dict[str, int] = {}

    def plan(self, workload: Workload) -> list[_Expected]:
        """Lay out the steps, with the hits that each must show and a check that they fit."""
        prefixes = {name: each.arm.denominator.prefix for name, each in self._targets.items()}
        planned = steps(
            workload,
            prefixes=prefixes,
            turns=self._start.turns,
            warmup=self._start.warmup,
            seed=_seed(self._around.seed, self._start),
        )
        self._around.tell(f"tokenising {len(planned)} prompts")
        tokens = _Tokens()
        expected = [self._expect(step, tokens) for step in planned]
        for target in self._targets.values():
            _check_fit(target, [each for each in expected if each.step.arm == target.arm.name])
        return expected

    def _expect(self, step: Step, tokens: _Tokens) -> _Expected:
        target = self._targets[step.arm]
        facts = target.running.engine.facts
        if not facts.tokenize:
            return _Expected(step=step)
        mine = tokens.of(target, step.request)
        if step.after is None:
            return _Expected(step=step, prompt_tokens=len(mine))
        common = min(_common(mine, tokens.of(target, step.after)), len(mine) - 1)
        hits = None
        if facts.block_size is not None:
            drafting = target.arm.declared.speculation is not None
            hits = expected_hits(common, facts.block_size, speculation=drafting)
        return _Expected(step=step, prompt_tokens=len(mine), common=common, hits=hits)

    def carry_out(self, planned: Sequence[_Expected]) -> None:
        """Send everything in order; the records say how far it came, whatever happens."""
        reason: str | None = "interrupted"
        try:
            warmups = [each for each in planned if each.step.role == "warmup"]
            inside = [each for each in planned if each.step.role != "warmup"]
            reason = self._send_all(warmups, "warming up") or self._window(inside)
        finally:
            self._around.add(
                record.MeasurementEnd(
                    measurement_id=self._start.measurement_id,
                    completed=reason is None,
                    reason=reason,
                )
            )

    def _window(self, inside: Sequence[_Expected]) -> str | None:
        """The measured window: counters, turns, counters."""
        with self._around.watching(self._start.measurement_id):
            self._read_counters("before")
            reason = self._send_all(inside, "measuring")
            self._read_counters("after")
        return reason

    def _send_all(self, planned: Sequence[_Expected], doing: str) -> str | None:
        """Send in order; return why it stopped early, or ``None``."""
        for number, each in enumerate(planned, start=1):
            self._around.tell(f"{doing}: request {number} of {len(planned)}")
            reason = self._send(each)
            if reason is not None:
                return reason
        return None

    def _send(self, expected: _Expected) -> str | None:
        step = expected.step
        target = self._targets[step.arm]
        identity = f"{self._start.measurement_id}.{next(self._position)}"
        try:
            sent = target.client.send(step.request, request_id=identity)
        except BaseException:  # an interrupt: what was seen of the answer is kept, then it goes on
            for left in target.client.cancelled:
                self._around.add(self._placed(left, expected, target))
            raise
        self._around.add(self._placed(sent, expected, target))
        if step.role != "warmup":
            boot = target.arm.boot_id
            self._sent_inside[boot] = self._sent_inside.get(boot, 0) + 1
        return self._trouble(sent, target)

    def _placed(self, sent: record.Request, expected: _Expected, target: Target) -> record.Request:
        """The request's record with its place in this measurement."""
        step = expected.step
        return msgspec.structs.replace(
            sent,
            measurement_id=self._start.measurement_id,
            arm=step.arm,
            boot_id=target.arm.boot_id,
            role=step.role,
            block=step.block,
            position=int(sent.request_id.rsplit(".", 1)[1]),
            expected_cached_tokens=expected.hits,
            common_prefix_tokens=expected.common,
        )

    def _trouble(self, sent: record.Request, target: Target) -> str | None:
        if sent.failure is None:
            self._failed_in_a_row = 0
            return None
        self._failed_in_a_row += 1
        if not target.running.is_alive():
            return f"the engine {target.arm.engine} died while it was measured"
        if self._failed_in_a_row >= GIVE_UP_AFTER:
            return (
                f"{GIVE_UP_AFTER} requests in a row failed, the last with "
                f"{sent.failure.kind}: {sent.failure.detail}"
            )
        return None

    def _read_counters(self, when: Any) -> None:  # noqa: ANN401 - "before" or "after"
        seen: set[str] = set()
        for target in self._targets.values():
            boot = target.arm.boot_id
            if boot in seen:
                continue
            seen.add(boot)
            self._around.add(self._settled(target, when))

    def _settled(self, target: Target, when: Any) -> record.Counters:  # noqa: ANN401
        """Counters once the server is idle and has counted what we know that it answered."""
        boot = target.arm.boot_id
        deadline = self._around.clock() + int(SETTLE_S * 1e9)
        while True:
            page = self._page(target, when)
            if self._is_settled(page, boot, when) or self._around.clock() > deadline:
                if when == "before":
                    self._finished_before[boot] = page.requests_finished
                return page
            self._around.sleep(0.05)

    def _is_settled(self, page: record.Counters, boot: str, when: str) -> bool:
        if not page.readable:
            return True
        idle = not page.requests_running and not page.requests_waiting
        before = self._finished_before.get(boot)
        if when == "before" or before is None or page.requests_finished is None:
            return idle
        return idle and page.requests_finished - before >= self._sent_inside.get(boot, 0)

    def _page(self, target: Target, when: Any) -> record.Counters:  # noqa: ANN401
        try:
            text = target.client.get_text("/metrics")
            problem = None
        except EngineError as error:
            text, problem = "", str(error)
        page = counters.parse(
            text,
            measurement_id=self._start.measurement_id,
            boot_id=target.arm.boot_id,
            when=when,
            at_ns=self._around.clock(),
            model=target.running.model,
        )
        return msgspec.structs.replace(page, problem=problem) if problem else page


def _seed(run_seed: int, start: record.Measurement) -> int:
    """Give every measurement its own nonces: what one test left cached must not warm another."""
    parts = (run_seed, start.gate, start.call, start.round, start.stage)
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:8])


class _Expected(msgspec.Struct, frozen=True, kw_only=True):
    """A step and what the server's own tokenizer says it must show."""

    step: Step
    prompt_tokens: int | None = None
    common: int | None = None
    hits: int | None = None


class _Tokens:
    """Token ids by the servers' own tokenizers, each prompt asked for once."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], list[int]] = {}

    def of(self, target: Target, request: PlannedRequest) -> list[int]:
        """The token ids of one rendered prompt."""
        key = (target.arm.boot_id, request.digest())
        if key not in self._known:
            answer = target.client.post_json("/tokenize", _rendering(request, target.running.model))
            self._known[key] = list(answer["tokens"])
        return self._known[key]


def _rendering(request: PlannedRequest, model: str) -> dict[str, Any]:
    if request.endpoint == "completions":
        return {"model": model, "prompt": request.text}
    body: dict[str, Any] = {"model": model, "messages": list(request.messages)}
    if request.tools:
        body["tools"] = list(request.tools)
    return body | {"add_generation_prompt": True}


def _common(mine: Sequence[int], earlier: Sequence[int]) -> int:
    """How many leading tokens two prompts share."""
    pairs = enumerate(zip(mine, earlier, strict=False))
    shorter = min(len(mine), len(earlier))
    return next((index for index, (one, two) in pairs if one != two), shorter)


def _check_fit(target: Target, planned: Sequence[_Expected]) -> None:
    """Refuse a plan that overflows the context, or a block that overflows the KV cache."""
    facts = target.running.engine.facts
    for each in planned:
        needed = (each.prompt_tokens or 0) + each.step.request.max_tokens
        if facts.max_model_len is not None and needed > facts.max_model_len:
            raise UsageError(
                f"A prompt of {each.prompt_tokens} tokens and {each.step.request.max_tokens} to "
                f"come do not fit the engine {target.arm.engine}.",
                f"Its context is {facts.max_model_len} tokens long.",
                "Shorten the prompt, lower max_tokens, or raise --max-model-len in the profile.",
            )
    if facts.block_size is None or facts.cache_blocks is None:
        return
    capacity = facts.block_size * facts.cache_blocks
    for _, block in itertools.groupby(planned, key=_block_key):
        _check_block(target, list(block), capacity)


def _block_key(each: _Expected) -> tuple[bool, int]:
    """A block's primes and turns belong together; warm-up counts its blocks apart."""
    return each.step.role == "warmup", each.step.block


def _check_block(target: Target, block: Sequence[_Expected], capacity: int) -> None:
    held = sum((each.prompt_tokens or 0) + each.step.request.max_tokens for each in block)
    if held > capacity:
        raise UsageError(
            f"One block of this measurement holds {held} tokens on the engine "
            f"{target.arm.engine}: what was primed would be evicted before it is measured.",
            f"Its KV cache holds {capacity} tokens.",
            "Shorten the prompts, or give the KV cache more memory in the profile.",
        )
