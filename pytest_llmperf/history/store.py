"""The history folder as it grows: sessions enter it, and people decide about them.

Finding what is there is in ``reader``; what a session must show to enter, in ``admission``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pytest_llmperf import benchmark_files
from pytest_llmperf.errors import UsageError
from pytest_llmperf.evidence import NAME as EVIDENCE
from pytest_llmperf.evidence import read
from pytest_llmperf.history import decisions, roll
from pytest_llmperf.history.admission import Admission, Rules, judge
from pytest_llmperf.history.decisions import Decision
from pytest_llmperf.history.derive import Series, central, derive
from pytest_llmperf.history.files import imported
from pytest_llmperf.history.layout import IMPORTED, VERDICTS, encoded, put
from pytest_llmperf.history.past import ENTERED, standing
from pytest_llmperf.history.reader import WINDOW, Reader
from pytest_llmperf.identity import differences
from pytest_llmperf.verdict import Word


class History(Reader):
    """A history folder; each method that writes says so.

    :param root: the folder; one that is not there is an empty history.
    :param now: the time of day, for ages and decisions.
    """

    def record_session(
        self, folder: Path, words: Mapping[str, Word | None], *, rules: Rules | None = None
    ) -> Admission:
        """Copy a session into the history with what its gates came to; the folder is only read.

        Valid gates enter whatever their word, but REGRESS, which enters once it is accepted;
        INVALID never does. Nothing is kept of a session of which nothing could ever count.

        :param words: each gate's worst word, ``None`` where nothing was judged.
        :raises EvidenceError: the evidence cannot be used, lacks a gate that was judged, or the
            session is there already.
        """
        derived = derive(read(folder / EVIDENCE))
        verdicts = judge(
            derived, words, rules=rules or Rules(), past=self._past_boots, when=self._now()
        )
        standings = {
            gate: standing(each, roll.problem(derived, gate), None)
            for gate, each in verdicts.gates.items()
        }
        path = None
        if any(
            roll.may_count(each, roll.problem(derived, gate))
            for gate, each in verdicts.gates.items()
        ):
            files: dict[str, Path | bytes] = {
                EVIDENCE: folder / EVIDENCE,
                VERDICTS: encoded(verdicts),
            }
            path = put(self.root, derived.session_id, files)
            self._reopen()
        return Admission(
            session_id=derived.session_id,
            path=None if path is None else str(path),
            entered=tuple(gate for gate, each in standings.items() if each.state in ENTERED),
            excluded={
                gate: each.reason or each.state
                for gate, each in standings.items()
                if each.state not in ENTERED
            },
        )

    def import_benchmarks(
        self, path: Path, machine: Mapping[str, Any], *, here: Mapping[str, Any] | None = None
    ) -> Admission:
        """Take an old result file of pytest-benchmark in, as a session of one number a test.

        :param machine: facts of this machine, as ``place.facts`` gives them.
        :param here: this machine as pytest-benchmark describes it; found out where not given.
        :raises EvidenceError: it is no such file, of another machine, or there already.
        """
        old = benchmark_files.read(path, here=here)
        content = encoded(imported(old, machine))
        folder = put(self.root, old.session_id, {IMPORTED: content})
        self._reopen()
        return Admission(
            session_id=old.session_id,
            path=str(folder),
            entered=tuple(sorted(old.medians_s)),
            excluded=old.refused,
        )

    def accept(
        self, gate: str, reason: str, who: str, *, sessions: Sequence[str] | None = None
    ) -> Decision:
        """Let a gate's regressions into history, so that later sessions are held against them.

        :param sessions: which; all that wait unless told otherwise.
        :raises UsageError: none waits, or no reason or nobody is given.
        """
        waiting = self._waiting(gate)
        chosen = tuple(each for each in waiting if sessions is None or each in sessions)
        if not chosen or (sessions is not None and set(sessions) - set(waiting)):
            raise UsageError(
                f"{gate} has no such regression to accept.",
                f"Waiting to be accepted: {', '.join(waiting) or 'nothing'}.",
                f"Known gates: {', '.join(self.gates()) or 'none'}.",
            )
        return self._decide("accept", gate, reason, who, sessions=chosen)

    def pin_anchor(self, gate: str, reason: str, who: str, *, label: str) -> Decision:
        """Pin a gate's newest sessions of each place as what later ones are held against.

        An anchor before it stands in the file still, and no longer holds.

        :raises UsageError: nothing has entered, or no reason or nobody is given.
        """
        chosen: dict[str, None] = {}
        for call, name, denominator_id, place in self._index.kinds(gate):
            rows = self._index.series(
                gate=gate, call=call, name=name, denominator_id=denominator_id, place=place
            )
            counting = [row.session_id for row in rows if self._standing(row).state in ENTERED]
            chosen |= dict.fromkeys(counting[:WINDOW]) if place is not None else {}
        if not chosen:
            raise UsageError(
                f"{gate} has nothing to pin.",
                "None of its sessions has entered history at a place that is fully known.",
                f"Known gates: {', '.join(self.gates()) or 'none'}.",
            )
        return self._decide("anchor", gate, reason, who, sessions=tuple(chosen), label=label)

    def retire(self, gate: str, reason: str, who: str) -> Decision:
        """Say that a gate is gone for good, so that it is missed no longer.

        :raises UsageError: history does not know it, or no reason or nobody is given.
        """
        if gate not in self.gates():
            raise UsageError(
                f"{gate} cannot be retired: history does not know it.",
                f"Known gates: {', '.join(self.gates()) or 'none'}.",
                "Name the gate as `python -m pytest_llmperf.history list` prints it.",
            )
        return self._decide("retire", gate, reason, who, sessions=())

    def _past_boots(self, series: Series) -> list[float]:
        """The logs of the window's boots of which nothing is known to differ in subject."""
        sessions = self.sessions(
            series.gate,
            series.place,
            series.denominator_id,
            call=series.call,
            series=series.name,
        )
        return [
            log
            for each in sessions
            if all(apart.is_unknown for apart in differences(series.subject, each.subject))
            for log in each.logs(central(series.name))
        ]

    def _reopen(self) -> None:
        """After a folder was made, which may be the first thing in a history."""
        self.close()
        self.refresh()

    def _waiting(self, gate: str) -> tuple[str, ...]:
        """Sessions in which a gate's regression waits to be accepted, oldest first."""
        waiting = [
            row.session_id
            for row in self._index.of_gates()
            if row.gate == gate
            and roll.may_count(row.judged, row.problem)
            and row.judged is not None
            and row.judged.word == "REGRESS"
            and self._accepted(gate, row.session_id) is None
        ]
        return tuple(dict.fromkeys(waiting))

    def _decide(
        self,
        kind: Literal["accept", "anchor", "retire"],
        gate: str,
        reason: str,
        who: str,
        *,
        sessions: tuple[str, ...],
        label: str | None = None,
    ) -> Decision:
        decision = Decision(
            kind=kind,
            gate=gate,
            reason=reason,
            who=who,
            when=self._now().isoformat(),
            label=label,
            sessions=sessions,
        )
        decisions.append(self.root, decision)
        self._decisions, self._decision_problems = decisions.read(self.root)
        return decision
