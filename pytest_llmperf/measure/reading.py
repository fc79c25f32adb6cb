"""Reading the servers' counters around a measurement and while it runs.

What a page says is in ``counters``; what a change proves is in ``proof``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from pytest_llmperf import counters, record
from pytest_llmperf.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_llmperf.measure.work import Surroundings, Target

SETTLE_S = 3.0
"""How long the server's counters may take to show what it has already answered."""

BETWEEN_S = 0.25
"""How long the next request waits for the counters to show the one before it."""

_NEVER_COUNTED = ("connect", "refused")
"""Failures of requests that no engine has had in hand: its counters never show them finished."""


class Meter:
    """The counters of one measurement's servers."""

    def __init__(
        self, start: record.Measurement, targets: Mapping[str, Target], around: Surroundings
    ) -> None:
        self._start = start
        self._targets = targets
        self._around = around
        self._finished_before: dict[str, float | None] = {}
        self._sent_inside: dict[str, int] = {}
        self._not_between: set[str] = set()

    def count(self, boot: str, sent: record.Request) -> None:
        """Note one more request between the two readings, where it reached the engine."""
        if sent.failure is None or sent.failure.kind not in _NEVER_COUNTED:
            self._sent_inside[boot] = self._sent_inside.get(boot, 0) + 1

    def read(self, when: Literal["before", "after"]) -> None:
        """Record each server's counters once it is idle and has counted what it answered."""
        boots = {each.arm.boot_id: each for each in self._targets.values()}
        for target in boots.values():
            self._around.add(self._settled(target, when))

    def read_between(self, target: Target) -> None:
        """Record the counters between two requests, so that what grew is one request's own.

        A server that does not show in time what it has answered is not asked again.
        """
        boot = target.arm.boot_id
        deadline = self._around.clock() + int(BETWEEN_S * 1e9)
        while boot not in self._not_between:
            page = self._page(target, "during")
            if self._has_counted(page, boot):
                self._around.add(page)
                return
            if not page.readable or self._around.clock() > deadline:
                self._not_between.add(boot)
            else:
                self._around.sleep(0.005)

    def record_page(
        self, target: Target, asked_ns: int, at_ns: int, text: str, problem: str | None
    ) -> None:
        """Record a page that was read while a load ran."""
        page = self._parsed(target, "during", counters.of_an_engine(text), problem, at_ns)
        self._around.add(msgspec.structs.replace(page, asked_ns=asked_ns))

    def _settled(self, target: Target, when: Literal["before", "after"]) -> record.Counters:
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
        return idle and self._has_counted(page, boot)

    def _has_counted(self, page: record.Counters, boot: str) -> bool:
        """Whether a page shows all that was sent since the first one as finished."""
        before = self._finished_before.get(boot)
        if before is None or page.requests_finished is None:
            return False
        return page.requests_finished - before >= self._sent_inside.get(boot, 0)

    def _page(self, target: Target, when: Literal["before", "during", "after"]) -> record.Counters:
        asked_ns = self._around.clock()
        try:
            text, problem = target.client.get_text(target.client.metrics_page), None
            text = counters.of_an_engine(text) if when == "during" else text
        except EngineError as error:
            text, problem = "", error.in_a_line
        page = self._parsed(target, when, text, problem, self._around.clock())
        return msgspec.structs.replace(page, asked_ns=asked_ns)

    def _parsed(
        self,
        target: Target,
        when: Literal["before", "during", "after"],
        text: str,
        problem: str | None,
        at_ns: int,
    ) -> record.Counters:
        page = counters.parse(
            text,
            measurement_id=self._start.measurement_id,
            boot_id=target.arm.boot_id,
            when=when,
            at_ns=at_ns,
            model=target.running.model,
        )
        return msgspec.structs.replace(page, problem=problem) if problem else page
