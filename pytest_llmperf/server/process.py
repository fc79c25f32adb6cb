"""One engine's process under its supervisor: start it, ask after it, end it with all its kin.

Whether it is ready is in ``readiness``; what runs between us and it is in ``supervisor``.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import BinaryIO

from pytest_llmperf.server import ownership, supervisor

GRACE_S = 15.0
"""Seconds an engine is given to end after SIGTERM; vLLM takes about two."""

_STOP_BOUND_S = GRACE_S + 15.0
_SWEEP_BOUND_S = 5.0


def engine_environment(own: dict[str, str], nonce: str, *, python: str) -> dict[str, str]:
    """Our environment without what would reach into the engine's Python, and its own on top."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    # Kernels are compiled with tools (ninja) that stand beside the engine's Python.
    path = os.pathsep.join([str(Path(python).parent), inherited.get("PATH", os.defpath)])
    # setproctitle writes its title over the environment, and our mark with it, unless told.
    marks = {"SPT_NOENV": "1", supervisor.NONCE_VARIABLE: nonce}
    return inherited | {"PATH": path} | own | marks


class EngineProcess:
    """An engine and the supervisor that ends it when we are gone.

    The engine's output goes to ``log``; its working directory is ``folder``.
    """

    def __init__(
        self,
        command: tuple[str, ...],
        *,
        environment: dict[str, str],
        folder: Path,
        log: Path,
        grace_s: float = GRACE_S,
    ) -> None:
        self.nonce = secrets.token_hex(8)
        self.pid: int | None = None
        self.exit_code: int | None = None
        self._born: int | None = None
        self._said = b""
        self._grace_s = grace_s
        read, self._pipe = os.pipe()
        try:
            with log.open("ab") as output:
                self._supervisor = self._start(command, environment, folder, read, output)
        except BaseException:
            os.close(self._pipe)
            raise
        finally:
            os.close(read)

    def _start(
        self,
        command: tuple[str, ...],
        environment: dict[str, str],
        folder: Path,
        read: int,
        output: BinaryIO,
    ) -> subprocess.Popen[bytes]:
        script = [sys.executable, "-I", "-S", str(Path(supervisor.__file__))]
        process = subprocess.Popen(  # noqa: S603 - the command is the profile's, no shell
            [*script, str(read), str(os.getpid()), str(self._grace_s), *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=output,
            cwd=folder,
            env=engine_environment(environment, self.nonce, python=command[0]),
            pass_fds=(read,),
            start_new_session=True,  # a Ctrl-C at the terminal reaches neither of the two
        )
        assert process.stdout is not None  # noqa: S101 - asked for above
        os.set_blocking(process.stdout.fileno(), False)
        return process

    def _listen(self) -> None:
        """Take in what the supervisor has said so far."""
        stdout = self._supervisor.stdout
        if stdout is None or stdout.closed:
            return
        self._said += stdout.read() or b""
        for line in self._said.split(b"\n")[:-1]:
            word, _, value = line.decode().partition(" ")
            if word == "started":
                self.pid = int(value)
                self._born = self._born or supervisor.born(self.pid)
            elif word == "ended" and value != "None":
                self.exit_code = int(value)

    def is_alive(self) -> bool:
        """Whether the engine's first process runs under its supervisor.

        Once it does not, its supervisor is waited for, which ends the rest and knows how it went.
        """
        self._listen()
        if self._born is not None and supervisor.born(self.pid or 0) != self._born:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._supervisor.wait(_STOP_BOUND_S)
        ended = self._supervisor.poll() is not None
        self._listen()
        return not ended and self.exit_code is None

    @property
    def how_it_ended(self) -> str:
        """The exit in words; for an engine that has ended."""
        if self.exit_code is None:
            return "ended because its supervisor was killed"
        if self.exit_code >= 0:
            return f"exited with code {self.exit_code}"
        with contextlib.suppress(ValueError):
            return f"was killed by {signal.Signals(-self.exit_code).name}"
        return f"was killed by signal {-self.exit_code}"

    def members(self) -> set[int]:
        """Living processes of this engine, without the supervisor."""
        ended = self._supervisor.poll() is not None
        self._listen()
        ancestor = None if ended else self._supervisor.pid
        found = supervisor.kin(self.nonce, session=self._session(), ancestor=ancestor)
        return found - {self._supervisor.pid}

    def signal(self, number: signal.Signals) -> tuple[int, ...]:
        """Send a signal to the engine's process group, then to every member outside of it.

        :returns: the ids of all processes of the engine, as they were before.
        """
        members = self.members()
        if self._session() is not None and self.pid is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)
        for pid in members:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
        return tuple(sorted(members))

    def _session(self) -> int | None:
        """The engine's session, unless its number has passed to somebody else by now."""
        if self.pid is None or supervisor.born(self.pid) not in (None, self._born):
            return None
        return self.pid

    def stop(self) -> None:
        """End the engine and all its kin. An interrupt on the way leaves that to the supervisor.

        :raises EngineError: a process of this engine is still alive afterwards.
        """
        self.let_go()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._supervisor.wait(_STOP_BOUND_S)
        self._supervisor.kill()
        self._supervisor.wait()
        self._sweep()
        self._listen()
        if self._supervisor.stdout is not None:
            self._supervisor.stdout.close()
        left = self.members()
        if left:
            raise ownership.Orphaned({pid: supervisor.born(pid) for pid in left})

    def let_go(self) -> None:
        """Tell the supervisor to end the engine, without waiting for it."""
        if self._pipe >= 0:
            pipe, self._pipe = self._pipe, -1
            with contextlib.suppress(BrokenPipeError):
                # A fork of ours may hold the pipe open, so its end alone may not be seen.
                os.write(pipe, b"x")
            os.close(pipe)

    def _sweep(self) -> None:
        """Kill what the supervisor, perhaps killed itself, has left behind."""
        deadline = time.monotonic() + _SWEEP_BOUND_S
        while (left := self.members()) and time.monotonic() < deadline:
            for pid in left:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)
