"""Where things lie in a history folder, and how a session gets there whole or not at all.

What a session's evidence says is in ``derive``; the index over all of them is in ``index``.

    sessions/<session>/evidence.jsonl   the evidence as the run left it
    sessions/<session>/verdicts.json    what each gate came to, and what was refused entry
    sessions/<name>/imported.json       numbers of another tool, taken as a session
    decisions.jsonl                     acceptances, anchors, retirements: only ever appended to
    index.sqlite                        can be rebuilt from all of the above
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from pytest_llmperf.errors import EvidenceError
from pytest_llmperf.evidence import NAME as EVIDENCE
from pytest_llmperf.verdict import Word

SCHEMA = 1
"""The number of this layout of a history folder; files of another are refused by name."""

SESSIONS = "sessions"
VERDICTS = "verdicts.json"
IMPORTED = "imported.json"
DECISIONS = "decisions.jsonl"
INDEX = "index.sqlite"

T = TypeVar("T")

_PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,100}")


class Judged(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one gate came to in one session."""

    word: Word | None
    """``None``: measured, and no claim was judged."""
    refused: str | None = None
    """Why it may not enter history although its verdict would let it."""


class Verdicts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What stands beside a recorded session's evidence."""

    schema: int = SCHEMA
    session_id: str
    recorded_at: str
    """UTC, ISO 8601."""
    gates: dict[str, Judged]


def scan(root: Path) -> dict[str, str]:
    """Every evidence or import file below the root, with a stamp that changes when it does.

    Folders whose name begins with a dot are still being written and are left out.
    """
    found: dict[str, str] = {}
    for folder, below, names in os.walk(root):
        below[:] = sorted(each for each in below if not each.startswith("."))
        for name in (EVIDENCE, IMPORTED):
            if name in names:
                path = Path(folder, name)
                beside = [Path(folder, VERDICTS)] if VERDICTS in names else []
                stamp = "|".join(_stamp(each) for each in (path, *beside))
                found[path.relative_to(root).as_posix()] = stamp
    return {path: stamp for path, stamp in found.items() if stamp}


def _stamp(path: Path) -> str:
    try:
        seen = path.stat()
    except OSError:
        return ""
    return f"{seen.st_size}.{seen.st_mtime_ns}.{seen.st_ino}"


def content_digest(path: Path) -> str:
    """A digest of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_verdicts(evidence: Path) -> Verdicts | None:
    """What stands beside a file of evidence; ``None`` where nothing does.

    :raises EvidenceError: it is malformed or of another schema.
    """
    path = evidence.with_name(VERDICTS)
    return decoded(path, Verdicts) if path.exists() else None


def encoded(what: msgspec.Struct) -> bytes:
    """A file's content: JSON that people can read."""
    return msgspec.json.format(msgspec.json.encode(what), indent=1) + b"\n"


def decoded(path: Path, kind: type[T]) -> T:
    """One file of JSON of our own.

    :raises EvidenceError: it cannot be read, is malformed, or is of another schema.
    """
    try:
        content = path.read_bytes()
        schema = msgspec.json.decode(content, type=dict[str, Any]).get("schema")
        if schema == SCHEMA:
            return msgspec.json.decode(content, type=kind)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise EvidenceError(
            f"{path} cannot be read.",
            f"{error}.",
            "Restore it; the other sessions are not touched.",
        ) from error
    raise EvidenceError(
        f"{path} is of schema {schema}.",
        f"This version reads schema {SCHEMA} and no other.",
        "Use the version of pytest-llmperf that wrote it; the other sessions are not touched.",
    )


def put(root: Path, name: str, files: Mapping[str, Path | bytes]) -> Path:
    """Make a session's folder out of files to copy or bytes to write; whole, or not at all.

    :raises EvidenceError: there is such a session already, or the disk refuses.
    """
    final = root / SESSIONS / folder_name(name)
    coming = root / SESSIONS / f".{final.name}.{secrets.token_hex(4)}"
    try:
        coming.mkdir(parents=True)
        for file, source in files.items():
            _write(coming / file, source.read_bytes() if isinstance(source, Path) else source)
        coming.rename(final)
    except OSError as error:
        shutil.rmtree(coming, ignore_errors=True)
        taken = final.exists()
        raise EvidenceError(
            f"Session {name} is already in the history."
            if taken
            else f"Session {name} could not be added to the history.",
            f"{final} is there." if taken else f"The system says: {error.strerror or error}.",
            "A session counts once; nothing was changed."
            if taken
            else "Nothing was changed; make room or give write access, and record again.",
        ) from error
    return final


def _write(path: Path, content: bytes) -> None:
    with path.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def folder_name(session_id: str) -> str:
    """A name for a session's folder: its id where that is a plain one, else a digest of it."""
    if _PLAIN_NAME.fullmatch(session_id):
        return session_id
    return f"session-{hashlib.sha256(session_id.encode()).hexdigest()[:16]}"
