"""The records of one or several sessions in memory, and the views of measurements built from them.

Files are in ``file``; a live run and a replayed one build their views through this code alone.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from pytest_llmperf import record, units
from pytest_llmperf.errors import EvidenceError
from pytest_llmperf.evidence.schema import SEE_SCHEMA
from pytest_llmperf.fitness import Canary, MachineState, Precondition


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """One arm of one measurement with everything recorded of it; requests in the order sent."""

    session: record.Session | None = None
    measurement: record.Measurement
    arm: record.Arm
    engine: record.Engine | None = None
    engine_end: record.EngineEnd | None = None
    requests: tuple[record.Request, ...] = ()
    """This arm's requests in all roles."""
    beside: tuple[record.Request, ...] = ()
    """The other arms' requests of the same measurement; they may share engine and counters."""
    before: record.Counters | None = None
    after: record.Counters | None = None
    during: tuple[record.Counters, ...] = ()
    """The server's counters inside the window, in the order read: while a load ran, or after each
    request of those that follow one another."""
    end: record.MeasurementEnd | None = None
    weights: record.Weights | None = None
    """What the engine reads of its checkpoints, where a gate asked."""
    bandwidth: record.Bandwidth | None = None
    """What the machine's memory gave beside this measurement, where a gate asked."""
    precondition: Precondition | None = None
    machine: tuple[MachineState, ...] = ()
    """The machine around and during the window, in the order taken."""
    canaries: tuple[Canary, ...] = ()
    endpoint: record.Endpoint | None = None
    """Its place in the order of a failover, and the address that its name was pinned to."""
    faults: tuple[record.Fault, ...] = ()
    """What was done to it on purpose, in order."""

    @property
    def turns(self) -> tuple[record.Request, ...]:
        """Turns of this arm, failed ones included."""
        return tuple(each for each in in_order(self.requests) if each.role == "turn")


def in_order(requests: Iterable[record.Request]) -> list[record.Request]:
    """Requests by their place in the measurement, else by when they were sent."""
    return sorted(
        requests,
        key=lambda each: (
            each.position is None,
            each.position or 0,
            each.stamps.sent_ns is None,
            each.stamps.sent_ns or 0,
            each.request_id,
        ),
    )


def _last_attempts(starts: Sequence[record.Measurement]) -> list[record.Measurement]:
    """Those of which there is no later attempt."""
    last: dict[tuple[object, ...], int] = {}
    for each in starts:
        last[_what(each)] = max(each.attempt, last.get(_what(each), 1))
    return [each for each in starts if each.attempt == last[_what(each)]]


def _what(start: record.Measurement) -> tuple[object, ...]:
    """What every attempt at one measurement has in common."""
    arms = tuple(each.name for each in start.arms)
    return (start.gate, start.call, start.round, start.stage, arms)


class _Book:
    """The records of one session, each kept once, in any order after the session's own."""

    def __init__(self, session: record.Session, source: str) -> None:
        self.session = session
        self.source = source
        self._lock = threading.Lock()
        self._by_key: dict[tuple[object, ...], record.Record] = {}
        self._requests: dict[str | None, list[record.Request]] = {}
        self._during: dict[tuple[str, str], list[record.Counters]] = {}
        self._machine: dict[str, list[MachineState]] = {}

    def add(self, entry: record.Record) -> None:
        with self._lock:
            key = _key(entry)
            if key in self._by_key:
                raise EvidenceError(
                    f"{self.source} holds {title(entry)} twice.",
                    "Two records with one identity cannot both be counted.",
                    "Keep every session's file as it was written; do not join files.",
                )
            self._by_key[key] = entry
            if isinstance(entry, record.Request):
                self._requests.setdefault(entry.measurement_id, []).append(entry)
            if isinstance(entry, record.Counters) and entry.when == "during":
                of = (entry.measurement_id, entry.boot_id)
                self._during.setdefault(of, []).append(entry)
            if isinstance(entry, MachineState):
                self._machine.setdefault(entry.measurement_id, []).append(entry)

    def records(self) -> list[record.Record]:
        with self._lock:
            return list(self._by_key.values())

    def get(self, *key: object) -> Any:  # noqa: ANN401 - the kind named first in the key, or None
        return self._by_key.get(key)

    def measurements(self) -> list[record.Measurement]:
        found = [each for each in self.records() if isinstance(each, record.Measurement)]
        return sorted(found, key=lambda each: (each.gate, each.round, each.call))

    def arms(self, measurement: record.Measurement) -> tuple[Measured, ...]:
        identity = measurement.measurement_id
        sent = in_order(self._requests.get(identity, ()))
        sung = (self.get(Canary, identity, when) for when in ("before", "after"))
        canaries = tuple(each for each in sung if each is not None)
        return tuple(
            Measured(
                session=self.session,
                measurement=measurement,
                arm=arm,
                engine=self.get(record.Engine, arm.boot_id),
                engine_end=self.get(record.EngineEnd, arm.boot_id),
                requests=tuple(each for each in sent if each.arm == arm.name),
                beside=tuple(each for each in sent if each.arm != arm.name),
                before=self.get(record.Counters, identity, arm.boot_id, "before"),
                after=self.get(record.Counters, identity, arm.boot_id, "after"),
                during=tuple(self._during.get((identity, arm.boot_id), ())),
                end=self.get(record.MeasurementEnd, identity),
                weights=self.get(record.Weights, arm.boot_id),
                bandwidth=self.get(record.Bandwidth, identity, arm.boot_id),
                precondition=self.get(Precondition, identity),
                machine=tuple(self._machine.get(identity, ())),
                canaries=canaries,
                endpoint=self.get(record.Endpoint, identity, arm.boot_id),
                faults=self._faults(identity, arm.boot_id),
            )
            for arm in measurement.arms
        )

    def _faults(self, measurement: str, boot: str) -> tuple[record.Fault, ...]:
        kinds = ("killed", "frozen", "thawed")
        found = (self.get(record.Fault, measurement, boot, kind) for kind in kinds)
        return tuple(each for each in found if each is not None)

    def check(self) -> None:
        """Refuse records that belong to a measurement or arm which no line starts."""
        for identity, requests in self._requests.items():
            if identity is None:
                continue
            start = self.get(record.Measurement, identity)
            arms = {arm.name for arm in start.arms} if start is not None else set()
            for each in requests:
                if each.arm not in arms:
                    raise EvidenceError(
                        f"{self.source}: {title(each)} belongs to no measurement.",
                        f"It names measurement {identity!r} and arm {each.arm!r}; "
                        f"the arms that the file starts there: {sorted(arms)}.",
                        f"Add the missing measurement line. {SEE_SCHEMA}",
                    )


def _key(entry: record.Record) -> tuple[object, ...]:
    """What makes a record the same as another one of its session."""
    match entry:
        case record.Session():
            identity: tuple[object, ...] = ()
        case record.Engine() | record.EngineEnd() | record.Weights():
            identity = (entry.boot_id,)
        case record.Measurement() | record.MeasurementEnd() | Precondition():
            identity = (entry.measurement_id,)
        case record.Counters():
            at = (entry.at_ns,) if entry.when == "during" else ()
            identity = (entry.measurement_id, entry.boot_id, entry.when, *at)
        case record.Bandwidth() | record.Endpoint():
            identity = (entry.measurement_id, entry.boot_id)
        case record.Fault():
            identity = (entry.measurement_id, entry.boot_id, entry.kind)
        case MachineState():
            identity = (entry.measurement_id, entry.at_ns)
        case Canary():
            identity = (entry.measurement_id, entry.when)
        case record.Request():
            identity = (entry.request_id,)
    return (type(entry), *identity)


def title(entry: record.Record) -> str:
    """Kind and identity of a record, as a sentence names it."""
    kind = str(entry.__struct_config__.tag).replace("_", " ")
    identity = ", ".join(str(part) for part in _key(entry)[1:])
    return f"{kind} {identity}".strip()


class Evidence:
    """What one or several sessions recorded, and the questions that it answers."""

    def __init__(self, records: Iterable[record.Record] = ()) -> None:
        self._books: list[_Book] = []
        self.cuts: list[str] = []
        """Last lines that a crash cut off, one sentence each."""
        for each in records:
            self.add(each)

    def add(self, entry: record.Record, *, source: str = "this session") -> None:
        """Take one more record of the newest session; a session record opens a session.

        :raises EvidenceError: no session is open, or the record was taken before.
        """
        if isinstance(entry, record.Session):
            self._open(entry, source)
        elif not self._books:
            raise EvidenceError(
                f"{source} has {title(entry)} before any session.",
                "The first record of every evidence file is its session.",
                SEE_SCHEMA,
            )
        else:
            self._books[-1].add(entry)

    def _open(self, session: record.Session, source: str) -> None:
        for book in self._books:
            if book.session.session_id == session.session_id:
                raise EvidenceError(
                    f"Session {session.session_id} was recorded twice.",
                    f"It stands in {book.source} and in {source}.",
                    "Remove the copy; one session counts once.",
                )
        self._books.append(_Book(session, source))

    def check(self) -> None:
        """:raises EvidenceError: a request belongs to a measurement that no record starts."""
        for book in self._books:
            book.check()

    @property
    def sessions(self) -> tuple[record.Session, ...]:
        """The sessions, oldest first."""
        return tuple(book.session for book in self._sorted())

    @property
    def engines(self) -> dict[str, record.Engine]:
        """Every boot and attachment, by boot id."""
        found = (each for book in self._sorted() for each in book.records())
        return {each.boot_id: each for each in found if isinstance(each, record.Engine)}

    @property
    def gates(self) -> tuple[str, ...]:
        """Node ids of all gates with a measurement, sorted."""
        return tuple(sorted({each.gate for book in self._books for each in book.measurements()}))

    def measurements(self, gate: str) -> tuple[record.Measurement, ...]:
        """A gate's measurements by session, round and call; empty if it has none.

        Where the machine was disturbed and the same boots were measured again, the last attempt.

        :param gate: a node id; where it is not found in full, ``file.py::test`` is enough.
        :raises EvidenceError: the short form fits several recorded gates.
        """
        recorded = self._recorded_as(gate)
        return tuple(
            each
            for book in self._sorted()
            for each in _last_attempts(book.measurements())
            if each.gate == recorded
        )

    def measured(self, measurement_id: str) -> tuple[Measured, ...]:
        """One measurement's arms, as declared.

        :raises EvidenceError: there is none of that id, or several sessions have one.
        """
        found = [
            (book, start)
            for book in self._books
            if (start := book.get(record.Measurement, measurement_id)) is not None
        ]
        if len(found) != 1:
            raise EvidenceError(
                f"{len(found)} measurements have the id {measurement_id!r}.",
                f"There is evidence of {self.contents()}.",
                "Ask with an id of `measurements(gate)`, or read one session's folder alone.",
            )
        book, start = found[0]
        return book.arms(start)

    def same(self, measured: Measured) -> Measured:
        """One arm again, with what was recorded of it since.

        :raises EvidenceError: its measurement is not here.
        """
        arms = self.measured(measured.measurement.measurement_id)
        return next(each for each in arms if each.arm.name == measured.arm.name)

    def contents(self) -> str:
        """What there is, for a message: sessions and gates."""
        sessions = units.counted(len(self._books), "session")
        return f"{sessions}, gates: {', '.join(self.gates) or 'none'}"

    def _sorted(self) -> list[_Book]:
        return sorted(self._books, key=_started)

    def _recorded_as(self, gate: str) -> str | None:
        """The recorded node id that is meant: evidence may come from another root folder."""
        gates = self.gates
        if gate in gates:
            return gate
        alike = [each for each in gates if _tail(each) == _tail(gate)]
        if len(alike) > 1:
            raise EvidenceError(
                f"The evidence for {gate} is ambiguous.",
                f"Recorded are: {', '.join(alike)}.",
                "Replay from the root folder in which the evidence was made.",
            )
        return alike[0] if alike else None


def _started(book: _Book) -> tuple[float, str]:
    """When a session began; of two at one moment their ids decide, never where they lie."""
    session = book.session
    try:
        moment = datetime.fromisoformat(session.started_at)
    except ValueError as error:
        raise EvidenceError(
            f"{book.source} does not say when its session began.",
            f"started_at {session.started_at!r} is no time.",
            f"Write it as 2026-01-31T12:00:00+00:00. {SEE_SCHEMA}",
        ) from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return moment.timestamp(), session.session_id


def _tail(gate: str) -> str:
    """A node id without the folders of its file."""
    path, mark, test = gate.partition("::")
    return path.rpartition("/")[2] + mark + test
