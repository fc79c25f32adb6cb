"""Whether client and server may open as many connections as a load needs, before anything is sent.

Each request that overlaps others holds a connection, which is a file descriptor on either side.
"""

from __future__ import annotations

import resource
from pathlib import Path

from pytest_llmperf.errors import UsageError

MARGIN = 64
"""Descriptors that either side needs beside one for each connection."""

_PROC = Path("/proc")


def check_connections(needed: int, *, server_pid: int | None, proc: Path = _PROC) -> None:
    """Refuse a load that client or server could not hold open.

    :param server_pid: of a server that is ours; ``None`` where it is not, and cannot be asked.
    :raises UsageError: a limit of open files is too low.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    _check("This process", needed, limit, _open_files(proc / "self"))
    if server_pid is not None:
        process = proc / str(server_pid)
        _check("The server", needed, _limit_of(process), _open_files(process))


def _check(who: str, needed: int, limit: int | None, in_use: int | None) -> None:
    if limit is None or limit == resource.RLIM_INFINITY:
        return
    wanted = needed + (in_use or 0) + MARGIN
    if wanted > limit:
        raise UsageError(
            f"{who} may not open {needed:,} connections at once.",
            f"Its limit of open files is {limit:,}, it has {in_use or 0:,} open, "
            f"and {MARGIN} are kept in reserve.",
            f"Raise the limit (ulimit -n {wanted}) before the run, or ask for fewer at once.",
        )


def _limit_of(process: Path) -> int | None:
    """The soft limit of open files of a process; ``None`` where it cannot be read."""
    try:
        lines = (process / "limits").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    soft = next((line.split()[3] for line in lines if line.startswith("Max open files")), "")
    return int(soft) if soft.isdecimal() else None


def _open_files(process: Path) -> int | None:
    try:
        return sum(1 for _ in (process / "fd").iterdir())
    except OSError:
        return None
