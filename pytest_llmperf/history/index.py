"""The index over a history folder: an SQLite file that can be thrown away and built again.

What it is built from is in ``layout`` and ``derive``; nothing is known only here.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from pytest_llmperf.errors import EvidenceError
from pytest_llmperf.history.derive import Boot, SeriesName
from pytest_llmperf.history.layout import Judged
from pytest_llmperf.history.rows import FileRow, GateRow, SeriesRow
from pytest_llmperf.identity import Half

SCHEMA = 1
"""The number of the tables; an index of another number is built anew."""

BUSY_MS = 30_000
"""How long a process waits for another one that writes."""

_TABLES = """
CREATE TABLE files (
    path TEXT PRIMARY KEY, stamp TEXT NOT NULL, derivation TEXT NOT NULL, content TEXT,
    session_id TEXT, started REAL, started_at TEXT, profile TEXT, problem TEXT,
    copy_of TEXT, is_judged INTEGER NOT NULL DEFAULT 0);
CREATE TABLE series (
    path TEXT NOT NULL, gate TEXT NOT NULL, call INTEGER NOT NULL, name TEXT NOT NULL,
    denominator_id TEXT NOT NULL, place TEXT, place_key TEXT NOT NULL, subject_key TEXT NOT NULL,
    started REAL NOT NULL, judged TEXT, problem TEXT, is_replicated INTEGER NOT NULL,
    boots BLOB NOT NULL);
CREATE TABLE halves (key TEXT PRIMARY KEY, body BLOB NOT NULL);
CREATE INDEX series_of_gate ON series (gate, call, name, denominator_id, place, started);
CREATE INDEX series_of_path ON series (path);
CREATE INDEX files_of_session ON files (session_id);
"""
_NAMES = ("files", "series", "halves")

_ROWS = """
SELECT series.*, files.session_id, files.started_at, files.profile, files.is_judged
FROM series JOIN files USING (path)
WHERE files.problem IS NULL AND files.copy_of IS NULL
"""


class Index:
    """The tables, open; a second process may read and write them at the same time.

    Where the folder cannot be written the index is kept in memory.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._halves: dict[str, Half] = {}
        self._database = self._open()

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def known(self) -> dict[str, tuple[str, str]]:
        """Stamp and derivation of every file that is indexed."""
        rows = self._database.execute("SELECT path, stamp, derivation FROM files")
        return {path: (stamp, derivation) for path, stamp, derivation in rows}

    def replace(
        self,
        gone: Iterable[str],
        coming: Sequence[tuple[FileRow, Sequence[SeriesRow]]],
        *,
        everything: bool = False,
    ) -> None:
        """Take files out and put files in, all at once or not at all.

        :param everything: take out all that is there first.
        """
        with self._transaction() as database:
            if everything:
                for name in _NAMES:
                    database.execute(f"DELETE FROM {name}")  # noqa: S608 - our own names
            for path in (*gone, *(file.path for file, _ in coming)):
                database.execute("DELETE FROM files WHERE path = ?", (path,))
                database.execute("DELETE FROM series WHERE path = ?", (path,))
            for file, series in coming:
                _insert(database, "files", msgspec.structs.asdict(file))
                for each in series:
                    self._insert_series(database, each)
            _mark_copies(database)

    def series(
        self,
        *,
        gate: str,
        call: int,
        name: SeriesName,
        denominator_id: str | None = None,
        place: str | None = None,
    ) -> Iterator[SeriesRow]:
        """Rows of one series of a gate, newest first; read as far as the caller goes on."""
        where = "AND gate = ? AND call = ? AND name = ?"
        values: list[Any] = [gate, call, name]
        for column, value in (("denominator_id", denominator_id), ("place", place)):
            if value is not None:
                where += f" AND {column} = ?"
                values.append(value)
        query = f"{_ROWS} {where} ORDER BY series.started DESC, files.session_id DESC"
        for row in self._database.execute(query, values):
            yield self._row(row)

    def gates(self) -> tuple[str, ...]:
        """Every gate with a row, sorted."""
        rows = self._database.execute("SELECT DISTINCT gate FROM series ORDER BY gate")
        return tuple(gate for (gate,) in rows)

    def of_gates(self) -> list[GateRow]:
        """What each session says of each gate, oldest first; numbers of other tools left out."""
        query = (
            "SELECT DISTINCT gate, session_id, files.started, judged, series.problem"
            " FROM series JOIN files USING (path) WHERE files.problem IS NULL"
            " AND files.copy_of IS NULL AND is_replicated ORDER BY files.started, session_id, gate"
        )
        return [
            GateRow(gate, session, started, _judged(judged), problem)
            for gate, session, started, judged, problem in self._database.execute(query)
        ]

    def kinds(self, gate: str) -> list[tuple[int, SeriesName, str, str | None]]:
        """The distinct series of a gate: call, name, denominator, place."""
        query = (
            "SELECT DISTINCT call, name, denominator_id, place FROM series WHERE gate = ?"
            " ORDER BY call, name, denominator_id, place"
        )
        return list(self._database.execute(query, (gate,)))

    def first_start(self, session_ids: Sequence[str]) -> float | None:
        """When the earliest of some sessions began; ``None`` where none of them is here."""
        marks = ", ".join("?" * len(session_ids))
        query = f"SELECT min(started) FROM files WHERE session_id IN ({marks})"  # noqa: S608 - marks
        (found,) = self._database.execute(query, list(session_ids)).fetchone()
        return found if found is None else float(found)

    def path_of(self, session_id: str) -> str | None:
        """The file that counts for a session."""
        query = (
            "SELECT path FROM files WHERE session_id = ? AND problem IS NULL AND copy_of IS NULL"
        )
        row = self._database.execute(query, (session_id,)).fetchone()
        return None if row is None else str(row[0])

    def problems(self) -> list[str]:
        """Why files do not count, in words, each with its name."""
        query = "SELECT path, problem FROM files WHERE problem IS NOT NULL ORDER BY path"
        return [f"{path}: {problem}" for path, problem in self._database.execute(query)]

    def copies(self) -> list[tuple[str, str]]:
        """Copies, and the file that counts instead."""
        query = "SELECT path, copy_of FROM files WHERE copy_of IS NOT NULL ORDER BY path"
        return list(self._database.execute(query))

    def _open(self) -> sqlite3.Connection:
        if not os.access(self._path.parent, os.W_OK):
            return _with_tables(sqlite3.connect(":memory:", isolation_level=None))
        try:
            return _with_tables(_connected(self._path))
        except sqlite3.OperationalError as error:
            raise EvidenceError(
                f"The index {self._path} cannot be used.",
                f"{error}.",
                "Another process may hold it: try again. It can be deleted at any time.",
            ) from error
        except sqlite3.DatabaseError:
            _discard(self._path)
            return _with_tables(_connected(self._path))

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with _transaction(self._database) as database:
            yield database

    def _insert_series(self, database: sqlite3.Connection, row: SeriesRow) -> None:
        values = {
            "path": row.path,
            "gate": row.gate,
            "call": row.call,
            "name": row.name,
            "denominator_id": row.denominator_id,
            "place": row.place.digest,
            "place_key": self._keep(database, row.place),
            "subject_key": self._keep(database, row.subject),
            "started": row.started,
            "judged": None if row.judged is None else msgspec.json.encode(row.judged).decode(),
            "problem": row.problem,
            "is_replicated": row.is_replicated,
            "boots": msgspec.json.encode(row.boots),
        }
        _insert(database, "series", values)

    @staticmethod
    def _keep(database: sqlite3.Connection, half: Half) -> str:
        key = half.key
        body = msgspec.json.encode(half)
        database.execute("INSERT OR IGNORE INTO halves VALUES (?, ?)", (key, body))
        return key

    def _half(self, key: str) -> Half:
        if key not in self._halves:
            query = "SELECT body FROM halves WHERE key = ?"
            (body,) = self._database.execute(query, (key,)).fetchone()
            self._halves[key] = msgspec.json.decode(body, type=Half)
        return self._halves[key]

    def _row(self, row: sqlite3.Row) -> SeriesRow:
        found = dict(row)
        return SeriesRow(
            **{name: found[name] for name in _PLAIN},
            place=self._half(found["place_key"]),
            subject=self._half(found["subject_key"]),
            judged=_judged(found["judged"]),
            is_replicated=bool(found["is_replicated"]),
            is_judged=bool(found["is_judged"]),
            boots=_boots.decode(found["boots"]),
        )


_PLAIN = (
    "path",
    "gate",
    "call",
    "name",
    "denominator_id",
    "started",
    "problem",
    "session_id",
    "started_at",
    "profile",
)
_boots = msgspec.json.Decoder(tuple[Boot, ...])


def _judged(text: str | None) -> Judged | None:
    return None if text is None else msgspec.json.decode(text, type=Judged)


def _connected(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path, timeout=BUSY_MS / 1000, isolation_level=None)
    with suppress(sqlite3.OperationalError):  # another process is setting it, and it stays set
        database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = NORMAL")
    return database


def _with_tables(database: sqlite3.Connection) -> sqlite3.Connection:
    database.row_factory = sqlite3.Row
    if _schema(database) != SCHEMA:
        with _transaction(database):
            if _schema(database) != SCHEMA:
                for name in _NAMES:
                    database.execute(f"DROP TABLE IF EXISTS {name}")
                for statement in filter(str.strip, _TABLES.split(";")):
                    database.execute(statement)
                database.execute(f"PRAGMA user_version = {SCHEMA}")
    return database


def _schema(database: sqlite3.Connection) -> int:
    return int(database.execute("PRAGMA user_version").fetchone()[0])


@contextmanager
def _transaction(database: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    database.execute("BEGIN IMMEDIATE")
    try:
        yield database
    except BaseException:
        database.execute("ROLLBACK")
        raise
    database.execute("COMMIT")


def _insert(database: sqlite3.Connection, table: str, values: dict[str, Any]) -> None:
    marks = ", ".join("?" * len(values))
    statement = f"INSERT INTO {table} ({', '.join(values)}) VALUES ({marks})"  # noqa: S608 - ours
    database.execute(statement, list(values.values()))


def _mark_copies(database: sqlite3.Connection) -> None:
    """Let one of several equal files count, and none of several that only claim to be one session.

    Which one counts depends on the files alone, not on the order in which they were found.
    """
    database.execute("UPDATE files SET copy_of = NULL")
    database.execute("UPDATE files SET problem = NULL WHERE problem LIKE ?", (f"{_TWICE}%",))
    claims: dict[str, list[tuple[str, str]]] = {}
    query = (
        "SELECT session_id, path, content FROM files WHERE problem IS NULL"
        " AND session_id IN (SELECT session_id FROM files GROUP BY session_id HAVING count(*) > 1)"
        " ORDER BY is_judged DESC, path"
    )
    for session_id, path, content in database.execute(query):
        claims.setdefault(session_id, []).append((path, content))
    for session_id, files in claims.items():
        paths = [path for path, _ in files]
        if len({content for _, content in files}) == 1:
            for path in paths[1:]:
                _set(database, path, "copy_of", paths[0])
        else:
            for path in paths:
                text = f"{_TWICE} {session_id} too, and differs from {_others(paths, path)}"
                _set(database, path, "problem", text)


def _set(database: sqlite3.Connection, path: str, column: str, value: str) -> None:
    statement = f"UPDATE files SET {column} = ? WHERE path = ?"  # noqa: S608 - our own columns
    database.execute(statement, (value, path))


_TWICE = "it says that it is session"


def _others(paths: Sequence[str], path: str) -> str:
    return ", ".join(sorted(each for each in paths if each != path))


def _discard(path: Path) -> None:
    """Take away an index that is no database; what it was built from stays."""
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
