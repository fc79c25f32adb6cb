"""Who owns a port, which processes are ours, and whether memory has come back.

Ending processes is in ``supervisor`` and ``process``; this room looks and waits.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from pytest_llmperf.errors import EngineError, EngineForeign
from pytest_llmperf.server import supervisor

HOST = "127.0.0.1"
"""Engines of our own listen here and nowhere else unless a profile says so."""

_MIB = 2**20
_GIB = 2**30
_STEP = 64 * _MIB
_LEVEL_SHARE = 0.005
"""Available memory that moves by less than this share of all memory is level."""


class Reservation:
    """A port that nobody else is given between our choice of it and the engine's ``bind``.

    The socket is bound and never listens; with SO_REUSEADDR on both sides Linux lets the engine
    bind beside it, while the kernel hands the port to nobody who asks for any free one.
    """

    def __init__(self, port: int | None = None) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind((HOST, port or 0))
        except OSError as error:
            self._socket.close()
            raise EngineForeign(
                f"Port {port} is taken by {describe_holder(port or 0)}; nothing was booted.",
                f"Binding {HOST}:{port} failed: {error.strerror}.",
                "Stop that process, choose another [engine] port in the profile, or leave the"
                " port out to be given a free one. To measure that server, attach to it.",
            ) from error
        self.port: int = self._socket.getsockname()[1]

    def release(self) -> None:
        """Give the port back."""
        self._socket.close()


def accepts(port: int) -> bool:
    """Whether anyone takes connections on a port; far cheaper to ask than who it is."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as asking:
        asking.settimeout(1.0)
        return asking.connect_ex((HOST, port)) == 0


def listeners(port: int) -> set[int | None]:
    """Process ids that listen on a TCP port; ``None`` for one that we may not look into."""
    import psutil  # noqa: PLC0415 - a plain pytest run must not pay for it

    return {
        pid
        for pid, each in _connections()
        if each.status == psutil.CONN_LISTEN and each.laddr and each.laddr.port == port
    }


def _connections() -> Iterator[tuple[int | None, Any]]:
    import psutil  # noqa: PLC0415 - a plain pytest run must not pay for it

    try:
        yield from ((each.pid, each) for each in psutil.net_connections("tcp"))
    except psutil.AccessDenied:  # macOS shows the whole table to root only
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                yield from ((process.pid, each) for each in process.net_connections("tcp"))


def describe_holder(port: int) -> str:
    """Who listens on a port, for a person."""
    return describe(pid for pid in listeners(port)) or "a process that we cannot see"


def describe(pids: Iterable[int | None]) -> str:
    """Processes by id and command line, for a person."""
    import psutil  # noqa: PLC0415 - a plain pytest run must not pay for it

    words = []
    for pid in sorted(each for each in pids if each is not None):
        try:
            command = " ".join(psutil.Process(pid).cmdline()) or psutil.Process(pid).name()
        except psutil.Error:
            command = "gone by now"
        words.append(f"process {pid} ({command[:200]})")
    return ", ".join(words)


def appetite(pids: Iterable[int]) -> int:
    """How much these processes have taken in, in steps of 64 MiB of memory and of bytes read.

    Weights are mapped into memory or read, often without a line in the log.
    """
    import psutil  # noqa: PLC0415 - a plain pytest run must not pay for it

    steps = 0
    for pid in pids:
        with contextlib.suppress(psutil.Error, AttributeError):  # macOS counts no bytes
            process = psutil.Process(pid)
            steps += int(process.memory_info().rss) // _STEP
            steps += int(process.io_counters().read_bytes) // _STEP
    return steps


def available_bytes() -> int:
    """Memory that a new process could have without swapping (MemAvailable)."""
    import psutil  # noqa: PLC0415 - a plain pytest run must not pay for it

    return int(psutil.virtual_memory().available)


def require_available(name: str, needed: int | None) -> None:
    """Refuse to boot on a machine that is short of memory.

    :raises EngineError: less than ``needed`` bytes are available.
    """
    if needed is None or (found := available_bytes()) >= needed:
        return
    raise EngineError(
        f"Engine {name} was not booted: {found / _GIB:.1f} GiB of memory are available and the"
        f" profile asks for {needed / _GIB:.1f} GiB.",
        f"MemAvailable is {found // _MIB} MiB.",
        "Stop what holds the memory, or lower [engine] min_available_gib and the engine's share.",
    )


class Orphaned(EngineError):
    """Processes of an engine that should have ended are alive.

    :param born: their ids, each with when it started.
    """

    def __init__(self, born: Mapping[int, int | None]) -> None:
        self.born = dict(born)
        super().__init__(
            f"{len(born)} process{'es' * (len(born) > 1)} of a stopped engine would not end.",
            f"Still alive: {describe(born)}.",
            "End them by hand; no further engine is booted beside them.",
        )


def refuse_orphans(born: Mapping[int, int | None]) -> None:
    """Refuse to go on while processes of a stopped engine are alive.

    :param born: ids of processes, each with when it started.
    :raises Orphaned: names them.
    """
    alive = {
        pid: start
        for pid, start in born.items()
        if start is not None and supervisor.born(pid) == start
    }
    if alive:
        raise Orphaned(alive)


def wait_until_memory_is_level(
    *,
    clock: Callable[[], int],
    sleep: Callable[[float], object],
    level_s: float = 2.0,
    bound_s: float = 300.0,
    read: Callable[[], int] = available_bytes,
    total_bytes: int | None = None,
) -> float:
    """Wait until available memory has been level for ``level_s``; give the seconds it took.

    A driver or a container may hand memory back minutes after its process has gone. The wait
    ends at ``bound_s`` in any case; a machine where others work may never be level.
    """
    band = (total_bytes or total_bytes_of_machine()) * _LEVEL_SHARE
    start = clock()
    low = high = read()
    level_since = start
    while True:
        now = clock()
        if now - level_since >= level_s * 1e9 or now - start >= bound_s * 1e9:
            return (now - start) / 1e9
        sleep(0.25)
        found = read()
        low, high = min(low, found), max(high, found)
        if high - low > band:
            low = high = found
            level_since = clock()


def total_bytes_of_machine() -> int:
    """All memory of this machine (MemTotal)."""
    import psutil  # noqa: PLC0415 - a plain pytest run must not pay for it

    return int(psutil.virtual_memory().total)
