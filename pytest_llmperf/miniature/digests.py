"""Writes and checks the ``DIGESTS`` file of a folder: the sha256 of every file below it.

It knows files and sums only, neither weights nor caches.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from pytest_llmperf.errors import UsageError

__all__ = ["check_digests", "file_digest", "write_digests"]

_NAME = "DIGESTS"


def file_digest(path: Path) -> str:
    """Return the sha256 of one file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_digests(folder: Path) -> str:
    """Write ``DIGESTS`` for all files below *folder*, as ``sha256sum`` does; return its own sum."""
    files = sorted(p for p in folder.rglob("*") if p.is_file() and p.name != _NAME)
    lines = [f"{file_digest(path)}  {path.relative_to(folder).as_posix()}\n" for path in files]
    (folder / _NAME).write_text("".join(lines), encoding="utf-8")
    return file_digest(folder / _NAME)


def check_digests(folder: Path) -> str:
    """Compare every file named in the folder's ``DIGESTS``; return the sum of that file.

    :raises UsageError: when ``DIGESTS`` or a file is missing or a sum differs; all are named.
    """
    listing = folder / _NAME
    if not listing.is_file():
        raise UsageError(
            f"The folder {folder} has no {_NAME}, so its files cannot be trusted.",
            f"Looked for {listing}.",
            "Install the package again, or train anew: python -m pytest_llmperf.miniature.train.",
        )
    faults = [
        fault
        for line in listing.read_text(encoding="utf-8").splitlines()
        if (fault := _fault(folder, line))
    ]
    if faults:
        raise UsageError(
            f"{len(faults)} of the files in {folder} are not the ones that were shipped.",
            "\n".join(faults),
            "Install the package again; after training, let the trainer write DIGESTS.",
        )
    return file_digest(listing)


def _fault(folder: Path, line: str) -> str:
    """Return what is wrong with the file of one ``DIGESTS`` line, or nothing."""
    expected, _, name = line.partition("  ")
    path = folder / name
    if not path.is_file():
        return f"{name}: missing"
    found = file_digest(path)
    if found == expected:
        return ""
    return f"{name}: sha256 is {found[:16]}..., shipped was {expected[:16]}..."
