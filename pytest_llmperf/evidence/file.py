"""Evidence files: appending one JSON line a record, and reading such files back.

This is the only place that writes a run's files; what the records say together is in ``views``.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import msgspec

from pytest_llmperf import record
from pytest_llmperf.errors import EvidenceError
from pytest_llmperf.evidence.schema import SEE_SCHEMA
from pytest_llmperf.evidence.views import Evidence, title

NAME = "evidence.jsonl"
"""The file in a session's folder."""

_NOT_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What a line that is not as it should be can raise."""

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[record.Record] = msgspec.json.Decoder(record.Record)


class EvidenceWriter:
    """Appends records to ``folder/evidence.jsonl``, each with the system before ``write`` returns.

    Any thread may write. A record that cannot be written whole leaves no part of itself.

    :param first: the session's own record, written as the first line.
    :raises EvidenceError: the folder cannot be made, or already holds a session's evidence.
    """

    def __init__(self, folder: Path, first: record.Session) -> None:
        self.path = folder / NAME
        self._lock = threading.Lock()
        self._whole_bytes = 0
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file: io.FileIO = self.path.open("xb", buffering=0)
        except OSError as error:
            raise EvidenceError(
                f"No evidence can be written to {self.path}.",
                f"{_os_words(error)}.",
                "Name another folder; evidence is never overwritten.",
            ) from error
        self.write(first)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, entry: record.Record) -> None:
        """Append one record as one line.

        :raises EvidenceError: the disk refuses it; everything written before stays readable.
        """
        line = _encoder.encode(entry) + b"\n"
        with self._lock:
            try:
                self._append(line)
            except OSError as error:
                self._cut_back()
                raise EvidenceError(
                    f"{title(entry)} could not be written to {self.path}.",
                    f"{_os_words(error)}; the {self._whole_bytes:,} bytes before it are whole.",
                    "Free space on that disk and run again; what was recorded can be replayed.",
                ) from error
            self._whole_bytes += len(line)

    def _append(self, line: bytes) -> None:
        rest = memoryview(line)
        while rest:
            rest = rest[self._file.write(rest) :]

    def _cut_back(self) -> None:
        """Remove what a failed write left; if even that fails the reader reports a cut line."""
        try:
            self._file.truncate(self._whole_bytes)
            self._file.seek(self._whole_bytes)
        except OSError:
            return

    def close(self) -> None:
        """Close the file; closing twice is harmless."""
        self._file.close()


def read(path: Path) -> Evidence:
    """Read one evidence file, or every ``evidence.jsonl`` in and below a folder.

    A last line that a crash cut off is left out and reported in ``Evidence.cuts``.

    :raises EvidenceError: there is none, or one is malformed or of another schema.
    """
    files = sorted(path.rglob(NAME)) if path.is_dir() else [path]
    if not files:
        raise EvidenceError(
            f"{path} holds no evidence.",
            f"There is no {NAME} in it or below it.",
            "Name a session's folder, or a folder above several.",
        )
    evidence = Evidence()
    for file in files:
        _read_into(evidence, file)
    evidence.check()
    return evidence


def _read_into(evidence: Evidence, file: Path) -> None:
    try:
        content = file.read_bytes()
    except OSError as error:
        raise EvidenceError(
            f"{file} cannot be read.", f"{_os_words(error)}.", "Name an evidence file or a folder."
        ) from error
    lines = content.split(b"\n")
    _check_head(file, lines[0])
    for number, line in _whole_lines(evidence, file, lines):
        evidence.add(_decoded(file, number, line), source=str(file))


class _Head(msgspec.Struct):
    """As much of a first line as any schema must have."""

    record: str | None = None
    schema: int | None = None


def _check_head(file: Path, line: bytes) -> None:
    """Refuse a file that does not begin with a session of the schema that we read."""
    try:
        head = msgspec.json.decode(line, type=_Head)
    except _NOT_JSON as error:
        raise EvidenceError(
            f"{file}, line 1, is not a session.", f"{error}.", SEE_SCHEMA
        ) from error
    if head.record != "session":
        raise EvidenceError(
            f"{file}, line 1, is not a session.", f"Its record is {head.record!r}.", SEE_SCHEMA
        )
    if head.schema != record.SCHEMA:
        raise EvidenceError(
            f"{file} has evidence of schema {head.schema}.",
            f"This version reads schema {record.SCHEMA} and no other.",
            "Replay it with the version of pytest-llmperf that wrote it.",
        )


def _whole_lines(evidence: Evidence, file: Path, lines: list[bytes]) -> Iterator[tuple[int, bytes]]:
    """Number the lines; leave out and report a last one that a crash cut off."""
    *ended, last = lines
    yield from enumerate(ended, start=1)
    if not last:
        return
    number = len(lines)
    if _is_cut(last):
        evidence.cuts.append(
            f"{file}, line {number}, was cut off after {len(last)} bytes; "
            "all lines before it were read."
        )
    else:
        yield number, last


def _is_cut(line: bytes) -> bool:
    try:
        msgspec.json.decode(line)
    except _NOT_JSON:
        return True
    return False


def _decoded(file: Path, number: int, line: bytes) -> record.Record:
    try:
        return _decoder.decode(line)
    except _NOT_JSON as error:
        raise EvidenceError(
            f"{file}, line {number}, is not evidence.", f"{error}.", SEE_SCHEMA
        ) from error


def _os_words(error: OSError) -> str:
    return f"The system says: {error.strerror or error}"
