"""Reading a history folder: past sessions found by gate and identity, anchors, the roll of gates.

What is written to a history is in ``store``; which gates must be there, in ``roll``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Self

from pytest_llmperf.errors import EvidenceError, UsageError
from pytest_llmperf.evidence import NAME as EVIDENCE
from pytest_llmperf.evidence import Evidence, read
from pytest_llmperf.history import decisions, layout, roll
from pytest_llmperf.history.decisions import Decision
from pytest_llmperf.history.derive import SeriesName
from pytest_llmperf.history.files import indexed, mark
from pytest_llmperf.history.index import Index
from pytest_llmperf.history.past import (
    ENTERED,
    Anchor,
    PastSession,
    Standing,
    State,
    standing,
)
from pytest_llmperf.history.rows import SeriesRow
from pytest_llmperf.identity import Difference, Half, differences

WINDOW = 10
"""Sessions that a gate is held against, and that an anchor is made of."""

_BATCH = 50
"""Files that are indexed at a time, so that an interrupted refresh is not lost."""

Clock = Callable[[], datetime]


def utc_now() -> datetime:
    """The time of day, in UTC."""
    return datetime.now(UTC)


class Reader:
    """A history folder, of which nothing but the index is written.

    Reading brings the index up to date first, once for each object; ``refresh`` does so again.

    :param root: the folder; one that is not there is an empty history.
    :param now: the time of day, for ages and decisions.
    """

    def __init__(self, root: Path, *, now: Clock = utc_now) -> None:
        self.root = root
        self._now = now
        self._opened: Index | None = None
        self._decisions: tuple[Decision, ...] = ()
        self._decision_problems: tuple[str, ...] = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the index; the next question opens it again."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def refresh(self) -> None:
        """Index folders that are new or changed, and forget those that are gone."""
        index = self._opened = self._opened or Index(self.root / layout.INDEX)
        known = index.known()
        found = layout.scan(self.root)
        gone = [path for path in known if path not in found]
        changed = [path for path, stamp in found.items() if known.get(path) != mark(stamp)]
        if gone:
            index.replace(gone, [])
        for start in range(0, len(changed), _BATCH):
            batch = changed[start : start + _BATCH]
            index.replace([], [indexed(self.root, path, found[path]) for path in batch])
        self._decisions, self._decision_problems = decisions.read(self.root)

    def rebuild(self) -> None:
        """Build the index from nothing; it says the same as before if nothing is amiss."""
        self.close()
        index = self._opened = Index(self.root / layout.INDEX)
        found = layout.scan(self.root)
        whole = [indexed(self.root, path, stamp) for path, stamp in found.items()]
        index.replace([], whole, everything=True)
        self._decisions, self._decision_problems = decisions.read(self.root)

    @property
    def problems(self) -> tuple[str, ...]:
        """Files and lines that do not count because of what they are, each by its name."""
        return (*self._index.problems(), *self._decision_problems)

    def gates(self) -> tuple[str, ...]:
        """Gates that have entered history or are only waiting to be accepted, sorted.

        A retired gate is none, until it is measured again.
        """
        return roll.known(self._index.of_gates(), self._decisions)

    def measured_gates(self) -> tuple[str, ...]:
        """Everything that has a number here, in whatever state, sorted."""
        return self._index.gates()

    def sessions(
        self,
        gate: str,
        place: Half,
        denominator_id: str,
        *,
        newest: int | None = WINDOW,
        max_age_days: float | None = None,
        call: int = 0,
        series: SeriesName = "candidate",
        states: Collection[State] = ENTERED,
        without: str | None = None,
    ) -> list[PastSession]:
        """A gate's past sessions of one place and denominator, oldest first.

        A place of which anything is unknown has no past: unknown equals nothing.

        :param newest: how many at most; ``None`` for all.
        :param states: which to give; those that count unless told otherwise.
        :param without: a session not to give, such as the one that is judged.
        """
        if place.digest is None:
            return []
        rows = self._index.series(
            gate=gate, call=call, name=series, denominator_id=denominator_id, place=place.digest
        )
        oldest = self._oldest(max_age_days)
        found: list[PastSession] = []
        for row in rows:
            if row.started < oldest or (newest is not None and len(found) == newest):
                break
            stands = self._standing(row)
            if stands.state in states and row.session_id != without:
                found.append(self._past(row, stands))
        return found[::-1]

    def nearest(
        self, gate: str, place: Half, *, call: int = 0, series: SeriesName = "candidate"
    ) -> tuple[Difference, ...]:
        """How this place differs from that of the gate's newest session; empty without one.

        For saying why there is nothing to compare with.
        """
        rows = self._index.series(gate=gate, call=call, name=series)
        counting = (row for row in rows if self._standing(row).state in ENTERED)
        newest = next(counting, None)
        return () if newest is None else differences(place, newest.place)

    def everything(self, gate: str) -> list[PastSession]:
        """All a history holds of a gate, in any place, state and series, oldest first."""
        found = [
            self._past(row, self._standing(row))
            for call, name in sorted({(call, name) for call, name, *_ in self._index.kinds(gate)})
            for row in self._index.series(gate=gate, call=call, name=name)
        ]
        return sorted(found, key=lambda each: (each.started, each.session_id, each.call))

    def evidence(self, session_id: str) -> Evidence:
        """All that was recorded in a past session.

        :raises EvidenceError: there is no such session, or its numbers came from another tool.
        """
        path = self._index.path_of(session_id)
        if path is None or not path.endswith(EVIDENCE):
            raise EvidenceError(
                f"The history holds no evidence of session {session_id}.",
                f"Its file there is {path}." if path else f"{self.root} has no such session.",
                "Ask for a session that `sessions` gives and that is replicated.",
            )
        return read(self.root / path)

    def anchor(
        self,
        gate: str,
        place: Half | None = None,
        denominator_id: str | None = None,
        *,
        call: int = 0,
        series: SeriesName = "candidate",
    ) -> Anchor | None:
        """The anchor that holds for a gate, with its sessions of one place and denominator."""
        self._index  # noqa: B018 - reads the decisions at the first question
        pinned = [each for each in self._decisions if each.kind == "anchor" and each.gate == gate]
        if not pinned:
            return None
        last = pinned[-1]
        found: list[PastSession] = []
        if place is not None and denominator_id is not None:
            found = self.sessions(
                gate, place, denominator_id, newest=None, call=call, series=series
            )
        return Anchor(
            gate=gate,
            label=last.label or "",
            reason=last.reason,
            who=last.who,
            when=last.when,
            session_ids=last.sessions,
            sessions=tuple(each for each in found if each.session_id in last.sessions),
        )

    def missing(self, collected: Collection[str], present: Collection[str]) -> tuple[str, ...]:
        """Known gates of the files that were collected, which are not among those present.

        :param collected: files as node ids name them.
        :param present: node ids before anything was deselected, without rounds.
        """
        return roll.missing(self.gates(), collected, present)

    def check_roll(self, collected: Collection[str], present: Collection[str]) -> None:
        """See that every decision can be read and no known gate of the collected files is missing.

        :raises UsageError: one is; a renamed one is named with what it may be called now.
        """
        gates = self.gates()
        if self._decision_problems:
            raise UsageError(
                "The history's decisions cannot all be read.",
                "; ".join(self._decision_problems),
                "Mend or remove the line: what it accepted, pinned or retired does not hold now, "
                "and can be decided again with `python -m pytest_llmperf.history`.",
            )
        roll.check(self.missing(collected, present), set(present) - set(gates))

    @property
    def _index(self) -> Index:
        if self._opened is None:
            self.refresh()
        assert self._opened is not None  # noqa: S101 - refresh opens it
        return self._opened

    def _oldest(self, max_age_days: float | None) -> float:
        if max_age_days is None:
            return float("-inf")
        return (self._now() - timedelta(days=max_age_days)).timestamp()

    def _standing(self, row: SeriesRow) -> Standing:
        return standing(
            row.judged,
            row.problem,
            self._accepted(row.gate, row.session_id),
            was_judged=row.is_judged,
            replicated=row.is_replicated,
        )

    def _accepted(self, gate: str, session_id: str) -> Decision | None:
        fitting = (
            each
            for each in self._decisions
            if each.kind == "accept" and each.gate == gate and session_id in each.sessions
        )
        return next(fitting, None)

    def _epoch(self, row: SeriesRow) -> int:
        """How many accepted changes came before a session or with it."""
        starts = [
            self._index.first_start(each.sessions)
            for each in self._decisions
            if each.kind == "accept" and each.gate == row.gate
        ]
        return sum(start is not None and start <= row.started for start in starts)

    def _past(self, row: SeriesRow, stands: Standing) -> PastSession:
        return PastSession(
            session_id=row.session_id,
            started_at=row.started_at,
            started=row.started,
            path=row.path,
            profile=row.profile,
            gate=row.gate,
            call=row.call,
            series=row.name,
            denominator_id=row.denominator_id,
            place=row.place,
            subject=row.subject,
            boots=row.boots,
            replicated=row.is_replicated,
            standing=stands,
            epoch=self._epoch(row),
        )
