"""A live run's gates against the past: screened when they are measured, confirmed at its end.

How they are screened and judged is in ``suspects``, what they are held against in ``reference``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_llmperf import profile, suspects
from pytest_llmperf.gate import Gate
from pytest_llmperf.reference import Configuration, FreshPairs, past_of, stored_configuration
from pytest_llmperf.report import Row
from pytest_llmperf.run import Run
from pytest_llmperf.settings import Settings

if TYPE_CHECKING:
    from pytest_llmperf.session import LiveSession

_WITHOUT_A_PAST = (
    "a past (--llmperf-record lets a session join it), or a reference (--llmperf-against PROFILE)"
)


class PendingGates:
    """The gates of one run that wait for fresh boots."""

    def __init__(self, session: LiveSession, settings: Settings) -> None:
        self._session = session
        self._settings = settings
        self.pending: list[suspects.Pending] = []

    def judge(self, run: Run, gate: Gate, p: float) -> Row:
        """Hold a run against history, or against a reference on fresh boots later on."""
        other = self._configuration(gate.node_id)
        if self._settings.mode == "quick":
            past = past_of(self._settings.history, run, gate.node_id, p, self._session.session_id)
            return suspects.quick_row(run, gate, p, past)
        if self._settings.against is not None or self._settings.mode == "aa":
            weight: float | None = 1.0
            row = suspects.forced_row(run, gate, p, other)
        else:
            past = past_of(self._settings.history, run, gate.node_id, p, self._session.session_id)
            row, weight = suspects.screened_row(run, gate, p, past)
        if weight is None or run.contradictions:
            return row
        why = self._unconfirmed(gate, other)
        if why is not None or other is None:
            is_first = other is None and not self._settings.attach
            return suspects.unconfirmed(row, why or "", _WITHOUT_A_PAST if is_first else None)
        gate.is_pending = True
        self.pending.append(
            suspects.Pending(
                gate=gate,
                row=len(gate.rows),
                run=run,
                p=p,
                levels=run.levels,
                retake=FreshPairs(self._session, gate.node_id, run, other),
                weight=weight,
            )
        )
        return row

    def _unconfirmed(self, gate: Gate, other: Configuration | None) -> str | None:
        """Why a suspect cannot be judged on fresh boots, if it cannot."""
        if self._settings.attach:
            return "attached servers are not booted again"
        if other is None:
            return "no past session kept a configuration that could be booted as the reference"
        if not gate.has_confirmation:
            return "the test does not call assert_no_regression in its own body"
        return None

    def confirm(self) -> None:
        """Judge every gate that waits for it, on fresh boots; does nothing the second time.

        :raises EngineError: an engine could not be booted.
        """
        waiting, self.pending = self.pending, []
        if waiting:
            levels = self._session.levels
            alpha = levels.alpha * waiting[0].gate.shares.past
            most = self._settings.pairs if self._settings.mode == "aa" else None
            suspects.confirm_all(
                waiting, alpha=alpha, beta=levels.beta, all_of=most, tell=self._session.tell
            )

    def _configuration(self, gate: str) -> Configuration | None:
        if self._settings.mode == "aa":
            return Configuration(profile=self._session.profile, source="the same profile")
        if self._settings.against is not None:
            name = self._settings.against
            return Configuration(profile=profile.load(name), source=f"profile {name}")
        return stored_configuration(self._settings.history, gate)
