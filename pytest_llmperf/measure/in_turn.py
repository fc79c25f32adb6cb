"""One turn after another: warm up, then prime and time in blocks, counters read around each.

Requests that overlap are in ``load``. The order of requests is in ``plan``.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from pytest_llmperf import record
from pytest_llmperf.measure.expectation import (
    Expected,
    Tokens,
    check_cache,
    check_context,
    check_provable,
)
from pytest_llmperf.measure.reading import Meter
from pytest_llmperf.measure.work import Surroundings, Target, Work
from pytest_llmperf.plan import steps
from pytest_llmperf.workload import Workload


class InTurn(Work[list[Expected]]):
    """A measurement whose turns follow one another."""

    def __init__(
        self, start: record.Measurement, targets: Mapping[str, Target], around: Surroundings
    ) -> None:
        super().__init__(start, targets, around)
        self._meter = Meter(start, targets, around)

    def plan(self, workload: Workload) -> list[Expected]:
        """Lay out the steps, with the hits that each must show and a check that they fit."""
        for target in self.targets.values():
            check_provable(target, self.start.min_cached_share)
        prefixes = {name: each.arm.denominator.prefix for name, each in self.targets.items()}
        planned = steps(
            workload,
            prefixes=prefixes,
            turns=self.start.turns,
            warmup=self.start.warmup,
            seed=self.seed,
        )
        self.around.tell(f"tokenising {len(planned)} prompts")
        tokens = Tokens()
        expected = [tokens.expect(self.targets[step.arm], step) for step in planned]
        for target in self.targets.values():
            _check_fit(target, [each for each in expected if each.step.arm == target.arm.name])
        return expected

    def send(self, planned: list[Expected]) -> str | None:
        """Send everything in order; return why it stopped early, or ``None``."""
        warmups = [each for each in planned if each.step.role == "warmup"]
        inside = [each for each in planned if each.step.role != "warmup"]
        return self._send_all(warmups, "warming up") or self._window(inside)

    def _window(self, inside: Sequence[Expected]) -> str | None:
        """The measured window: counters, turns, counters."""
        with self.around.watching(self.start.measurement_id):
            self._meter.read("before")
            reason = self._send_all(inside, "measuring")
            self._meter.read("after")
        return reason

    def _send_all(self, planned: Sequence[Expected], doing: str) -> str | None:
        for number, each in enumerate(planned, start=1):
            self.around.tell(f"{doing}: request {number} of {len(planned)}")
            reason = self._send(each)
            if reason is not None:
                return reason
        return None

    def _send(self, expected: Expected) -> str | None:
        step = expected.step
        target = self.targets[step.arm]
        try:
            sent = target.client.send(step.request, request_id=self.next_id())
        except BaseException:  # an interrupt: what was seen of the answer is kept, then it goes on
            for left in target.client.cancelled:
                self.around.add(self.placed(left, expected))
            raise
        self.around.add(self.placed(sent, expected))
        if step.role != "warmup":
            self._meter.count(target.arm.boot_id, sent)
            self._meter.read_between(target)
        return self.trouble(sent, target)


def _check_fit(target: Target, planned: Sequence[Expected]) -> None:
    """Refuse a plan that overflows the context, or a block that overflows the KV cache."""
    check_context(target, planned)
    for _, block in itertools.groupby(planned, key=_block_key):
        held = sum((each.prompt_tokens or 0) + each.step.request.max_tokens for each in block)
        check_cache(target, held, "One block")


def _block_key(each: Expected) -> tuple[bool, int]:
    """A block's primes and turns belong together; warm-up counts its blocks apart."""
    return each.step.role == "warmup", each.step.block
