"""One lock for the whole host, so that two jobs never measure at once.

The kernel's ``flock`` holds it and lets go of it with the process; what stands in the file only
tells others who it is. Sessions inside one that holds it (a test that runs pytest) go through.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec

from pytest_llmperf.errors import HostBusy, UsageError
from pytest_llmperf.machine import host
from pytest_llmperf.machine.family import ancestors, process

HELD_VARIABLE = "LLMPERF_LOCK_HELD"
"""Tells the processes below a holder which lock it holds: ``PID PATH``."""

TELL_EVERY_S = 10.0
_LOOK_EVERY_S = 0.25

_held: dict[Path, int] = {}
"""How many sessions of this very process hold a lock."""


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """Who holds the lock, as the file says."""

    pid: int
    started: int | None = None
    """When that process started, in ticks since the machine's start."""
    boot_id: str | None = None
    namespace: str | None = None
    """Where its number means something; a container has its own."""
    command: str = ""

    def is_gone(self) -> bool:
        """Whether it is known to have ended; somebody it left behind may still hold the file."""
        if self.boot_id != host.boot_id() or self.namespace != host.pid_namespace():
            return False
        found = process(self.pid)
        return found is None or (self.started is not None and found.started != self.started)

    def __str__(self) -> str:
        return f"process {self.pid} ({self.command or 'unknown command'})"


def default_lock() -> Path:
    """The lock's file where none is named: one for every user, job and folder of this host."""
    shared = Path("/tmp")  # noqa: S108 - jobs may have temporary folders of their own; this is shared
    folder = shared if shared.is_dir() else Path(tempfile.gettempdir())
    return folder / "pytest-llmperf.lock"


class HostLock:
    """The host's lock, taken at the first ``acquire`` and held until ``release``.

    :param wait_s: how long another holder is waited for.
    :param clock: monotonic nanoseconds.
    :param tell: takes a line for a person who waits.
    """

    def __init__(
        self,
        path: Path,
        *,
        wait_s: float,
        command: str,
        clock: Callable[[], int],
        sleep: Callable[[float], object],
        tell: Callable[[str], None],
    ) -> None:
        self._path = path.expanduser().absolute()
        self._wait_s = wait_s
        self._command = command
        self._clock = clock
        self._sleep = sleep
        self._tell = tell
        self._file: int | None = None
        self._refusal: HostBusy | None = None
        self._is_held = False

    def acquire(self) -> None:
        """Take the lock, waiting for whoever holds it; at once when it is held already.

        :raises HostBusy: it was not free in time; said again at once when asked again.
        :raises UsageError: the file cannot be opened.
        """
        if self._is_held:
            return
        if self._refusal is not None:
            raise self._refusal.with_traceback(None)
        if not _held.get(self._path) and not self._is_held_above():
            self._wait()
        self._is_held = True
        if self._file is not None or self._path in _held:
            _held[self._path] = _held.get(self._path, 0) + 1

    def release(self) -> None:
        """Let go of it; may be called again."""
        if not self._is_held:
            return
        self._is_held = False
        if self._path in _held:
            _held[self._path] -= 1
            if not _held[self._path]:
                del _held[self._path]
        if self._file is not None:
            os.environ.pop(HELD_VARIABLE, None)
            with contextlib.suppress(OSError):  # whoever may not write here only held it
                os.ftruncate(self._file, 0)
            os.close(self._file)
            self._file = None

    def _is_held_above(self) -> bool:
        """Whether a process that we descend from holds this lock."""
        pid, _, path = os.environ.get(HELD_VARIABLE, "").partition(" ")
        above = [os.getppid(), *ancestors(os.getpid())]
        return path == str(self._path) and pid.isdigit() and int(pid) in above

    def _wait(self) -> None:
        began = self._clock()
        told: float | None = None
        while not self._take():
            waited_s = (self._clock() - began) / 1e9
            holder = read_holder(self._path)
            who = "another process" if holder is None else str(holder)
            if waited_s >= self._wait_s:
                self._refusal = HostBusy(
                    f"Nothing was measured: {who} has measured on this host for all of the"
                    f" {self._wait_s:g} s that it was waited for.",
                    f"It holds {self._path}.",
                    "Wait for it to end, or give it longer with --llmperf-lock-wait SECONDS.",
                )
                raise self._refusal
            if told is None or waited_s - told >= TELL_EVERY_S:
                told = waited_s
                self._tell(f"waiting for the host: {who} measures, {waited_s:.0f} s so far")
            self._sleep(_LOOK_EVERY_S)

    def _take(self) -> bool:
        """Try once; a file whose holder is gone and that is held all the same is replaced."""
        file = self._open()
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            holder = read_holder(self._path)
            if holder is not None and holder.is_gone():
                with contextlib.suppress(OSError):
                    self._path.unlink()
            return False
        if not self._is_current(file):  # it was replaced between our opening and locking it
            os.close(file)
            return False
        self._file = file
        self._sign(file)
        return True

    def _open(self) -> int:
        flags = os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            try:
                return os.open(self._path, os.O_RDWR | flags)
            except FileNotFoundError:
                made = os.open(self._path, os.O_RDWR | os.O_CREAT | flags, 0o666)
                with contextlib.suppress(PermissionError):  # made by somebody else just now
                    os.fchmod(made, 0o666)  # other users wait at the same file
                return made
            except PermissionError:
                return os.open(self._path, os.O_RDONLY | flags)
        except OSError as error:
            raise UsageError(
                f"The host's lock {self._path} cannot be opened.",
                f"The system says: {error.strerror}.",
                "Name a file that every job on this host may write: --llmperf-lock FILE.",
            ) from error

    def _is_current(self, file: int) -> bool:
        try:
            return os.path.samestat(os.fstat(file), self._path.stat())
        except FileNotFoundError:
            return False

    def _sign(self, file: int) -> None:
        me = process(os.getpid())
        holder = Holder(
            pid=os.getpid(),
            started=None if me is None else me.started,
            boot_id=host.boot_id(),
            namespace=host.pid_namespace(),
            command=self._command,
        )
        with contextlib.suppress(OSError):  # it is locked all the same, only without a name
            os.ftruncate(file, 0)
            os.pwrite(file, msgspec.json.encode(holder) + b"\n", 0)
        os.environ[HELD_VARIABLE] = f"{os.getpid()} {self._path}"


def read_holder(path: Path) -> Holder | None:
    """Who holds the lock, as far as the file says."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Holder)
    except (OSError, msgspec.DecodeError):
        return None
