"""An engine as a fixture of a live run hands it out.

When it boots and when it must make room for another is ``server.pool``'s affair; a recorded run's
engines, which are names only, are in ``recorded``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytest_llmperf import profile, record
from pytest_llmperf.server.launch import RunningEngine
from pytest_llmperf.server.pool import EnginePool


class EngineLease:
    """An engine as a fixture hands it out: booted when needed, stopped when others need room."""

    def __init__(
        self,
        pool: EnginePool,
        spec: profile.EngineSpec,
        round_number: int,
        recipe: Mapping[str, Any],
    ) -> None:
        self._pool = pool
        self._round = round_number
        self.spec = spec
        self.recipe = recipe
        """How it was asked of its profile, to ask the same of another."""

    @property
    def name(self) -> str:
        """The engine's name."""
        return self.spec.name

    @property
    def declared(self) -> record.Declared:
        """What its profile promises of it."""
        return self.spec.declared

    @property
    def url(self) -> str:
        """Where it answers; boots it if it is not up."""
        return self.running().url

    def running(self) -> RunningEngine:
        """The running engine.

        :raises EngineError: it could not be booted, or another one is in its place.
        """
        return self._pool.lease(self.spec, self._round)
