"""The process between us and one engine: it ends the engine's whole tree once we are gone.

It is run by path and imports only the standard library. What it is told and what it answers is
``process``'s business; which port belongs to whom is in ``ownership``.

    python -I -S supervisor.py PIPE_FD PARENT_PID GRACE_S COMMAND...

It holds the read end of a pipe whose write end only the parent holds. A byte on the pipe, its
end, another parent, or SIGTERM all mean: end the tree. It says ``started PID`` and
``ended CODE`` on its standard output; the engine's output goes to its standard error.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Iterator
from typing import NoReturn

NONCE_VARIABLE = "LLMPERF_NONCE"
"""The environment variable whose value marks every process of one engine."""

_ENDED = (b"Z", b"X")
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_STRAGGLER_GRACE_S = 2.0
_KILL_BOUND_S = 10.0
_POLL_S = 0.1
_PARENT_CHECK_S = 0.5


def marked(nonce: str) -> set[int]:
    """Process ids whose environment carries ``nonce``; empty where there is no ``/proc``."""
    mark = f"{NONCE_VARIABLE}={nonce}".encode()
    found = set()
    for pid in _pids():
        with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as environment:  # noqa: PTH123 - pathlib costs a third of this process's start
            if mark in environment.read().split(b"\0"):
                found.add(pid)
    return found


def kin(nonce: str, *, session: int | None = None, ancestor: int | None = None) -> set[int]:
    """Living processes that are ours by environment, by session or by descent.

    Three marks, since each has a hole: a process may overwrite its environment with its title
    (setproctitle), leave the session (``setsid``), or lose its parent.
    """
    table = dict(_alive())
    ours = {pid for pid in marked(nonce) if pid in table}
    if session is not None:
        ours |= {pid for pid, (_, its_session) in table.items() if its_session == session}
    if ancestor is not None:
        ours |= _descendants(ancestor, table)
    return ours


def born(pid: int) -> int | None:
    """When a living process started, in clock ticks since boot; ``None`` once it has ended.

    It tells apart two processes that had one id.
    """
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", "rb") as stat:  # noqa: PTH123 - as above
        fields = stat.read().rpartition(b")")[2].split()
        return None if fields[0] in _ENDED else int(fields[19])
    return None


def _descendants(ancestor: int, table: dict[int, tuple[int, int]]) -> set[int]:
    found: set[int] = set()
    front = {ancestor}
    while front:
        front = {pid for pid, (parent, _) in table.items() if parent in front} - found
        found |= front
    return found


def _pids() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - as above
    except OSError:
        return []


def _alive() -> Iterator[tuple[int, tuple[int, int]]]:
    """Each process that is no zombie: its id, parent and session."""
    for pid in _pids():
        with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", "rb") as stat:  # noqa: PTH123 - as above
            # The name is in brackets and may itself hold spaces and brackets.
            state, parent, _, session, *_ = stat.read().rpartition(b")")[2].split()
            if state not in _ENDED:
                yield pid, (int(parent), int(session))


def _prctl(option: int, value: int) -> None:
    """Linux only; elsewhere the pipe and the nonce carry the weight."""
    with contextlib.suppress(OSError, AttributeError, ImportError):
        import ctypes  # noqa: PLC0415 - absent from some builds of Python

        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _start(command: list[str]) -> int:
    supervisor = os.getpid()
    running, runs = os.pipe()  # its end closes when the command takes over
    pid = os.fork()
    if pid:
        os.close(runs)
        os.read(running, 1)  # before that, a signal to the engine's group would reach nobody
        os.close(running)
        return pid
    try:
        _become(command, supervisor)
    except OSError as error:
        os.write(2, f"cannot run {command[0]}: {error}\n".encode())
    os._exit(127)


def _become(command: list[str], supervisor: int) -> NoReturn:
    os.setsid()
    # SIGTERM, not SIGKILL: it lets the server take its own children with it.
    _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != supervisor:
        os._exit(127)
    signal.set_wakeup_fd(-1)
    for each in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM, signal.SIGPIPE):
        signal.signal(each, signal.SIG_DFL)
    os.dup2(2, 1)
    os.execvp(command[0], command)  # noqa: S606 - the command is the profile's, no shell is involved


class _Supervision:
    """One engine, watched until it ends or has to end."""

    def __init__(self, pipe: int, parent: int, grace_s: float) -> None:
        self.pipe = pipe
        self.parent = parent
        self.grace_s = grace_s
        self.nonce = os.environ.get(NONCE_VARIABLE, "")
        self.engine = 0
        self.code: int | None = None
        self.told_to_stop = False
        self.wake = self._wake_on_signals()

    def _wake_on_signals(self) -> int:
        read, write = os.pipe()
        os.set_blocking(read, False)
        os.set_blocking(write, False)
        signal.set_wakeup_fd(write)
        for each in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(each, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        return read

    def _stop(self, *_: object) -> None:
        self.told_to_stop = True

    def run(self, command: list[str]) -> int | None:
        self.engine = _start(command)
        _say(f"started {self.engine}")
        while self.code is None and not self.told_to_stop:
            self._wait()
        self._end_tree()
        _say(f"ended {self.code}")
        return self.code

    def _wait(self) -> None:
        ready, _, _ = select.select([self.pipe, self.wake], [], [], _PARENT_CHECK_S)
        if self.wake in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self.wake, 4096)
        # A fork of the parent may keep the pipe open, so the parent itself is watched too.
        if self.pipe in ready or os.getppid() != self.parent:
            self.told_to_stop = True
        self._reap()

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid == self.engine:
                    self.code = os.waitstatus_to_exitcode(status)

    def _kin(self) -> set[int]:
        me = os.getpid()
        return kin(self.nonce, session=self.engine, ancestor=me) - {me}

    def _end_tree(self) -> None:
        if self.code is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.engine, signal.SIGTERM)
                # A process that was stopped hears it only once it goes on.
                os.killpg(self.engine, signal.SIGCONT)
        self._wait_for_end(self.grace_s, until_engine=True)
        _signal_all(self._kin(), signal.SIGTERM)
        _signal_all(self._kin(), signal.SIGCONT)
        self._wait_for_end(_STRAGGLER_GRACE_S if self.code is not None else 0.0)
        deadline = time.monotonic() + _KILL_BOUND_S
        while (left := self._kin()) and time.monotonic() < deadline:
            _signal_all(left, signal.SIGKILL)
            time.sleep(_POLL_S)
            self._reap()
        self._reap()

    def _wait_for_end(self, bound_s: float, *, until_engine: bool = False) -> None:
        deadline, pause_s = time.monotonic() + bound_s, _POLL_S / 8
        while time.monotonic() < deadline:
            self._reap()
            if (until_engine and self.code is not None) or not self._kin():
                return
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _POLL_S)


def _signal_all(pids: set[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _say(line: str) -> None:
    with contextlib.suppress(OSError):
        os.write(1, f"{line}\n".encode())


def main(arguments: list[str]) -> int:
    """Supervise one engine; the exit status is the engine's, ``128 + n`` after signal ``n``."""
    pipe, parent, grace_s, *command = arguments
    os.set_inheritable(int(pipe), False)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    code = _Supervision(int(pipe), int(parent), float(grace_s)).run(command)
    if code is None:
        return 1
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
