"""Boot an engine of our own: a context manager whose end leaves no process behind.

Its twin for a server that somebody else runs is in ``attach``; sharing engines between tests is
in ``pool``.
"""

from __future__ import annotations

import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from signal import Signals
from typing import Any, Protocol

from pytest_llmperf import record
from pytest_llmperf.errors import EngineDied, UsageError
from pytest_llmperf.server import build, materials, ownership, probe, readiness
from pytest_llmperf.server.bootlog import IMPORTING, BootLog, Progress, Stopwatch
from pytest_llmperf.server.process import GRACE_S, EngineProcess
from pytest_llmperf.spec import EngineSpec

__all__ = ["LaunchedEngine", "Progress", "RunningEngine", "launch"]

_HEALTH_S = 5.0
_DETAIL_LINES = 15


class RunningEngine(Protocol):
    """An engine that was found ready, launched or attached."""

    engine: record.Engine

    @property
    def url(self) -> str:
        """Where it answers, without ``/v1``."""

    @property
    def model(self) -> str:
        """The name it serves its model under."""

    @property
    def exit_code(self) -> int | None:
        """How its process ended (``-n``: by signal n); ``None`` while it runs or is not ours."""

    def is_alive(self) -> bool:
        """Whether its process runs, or the attached server answers."""

    def is_healthy(self) -> bool:
        """Whether it also answers ``/health`` in time."""

    def how_it_ended(self) -> str:
        """Its end in words, with the last lines of its log where there is one."""

    def log_tail(self, lines: int) -> str:
        """The last lines of its log; empty where it is not ours."""

    def let_go(self) -> None:
        """Begin its end without waiting for it; its context waits."""

    def signal(self, number: Signals) -> tuple[int, ...]:
        """Send a signal to all its processes, to see what becomes of its callers; give their ids.

        :raises UsageError: it is not ours.
        """

    def check(self) -> None:
        """Ask for a short generation again, before performance is blamed for a failure.

        :raises EngineError: it does not answer sanely.
        """


class LaunchedEngine:
    """An engine of ours that is ready."""

    def __init__(self, engine: record.Engine, process: EngineProcess, log: BootLog) -> None:
        self.engine = engine
        self._process = process
        self._log = log

    @property
    def url(self) -> str:
        """Where it answers, without ``/v1``."""
        return self.engine.url

    @property
    def model(self) -> str:
        """The name it serves its model under; each boot has its own."""
        return self.engine.served_model

    @property
    def exit_code(self) -> int | None:
        """How its process ended, ``-n`` by signal n; ``None`` while it runs."""
        self.is_alive()
        return self._process.exit_code

    def is_alive(self) -> bool:
        """Whether its process runs."""
        return self._process.is_alive()

    def is_healthy(self) -> bool:
        """Whether it runs and answers ``/health`` in time; one without that page does."""
        if not self.is_alive():
            return False
        status = probe.ask(self.url, "/health", timeout_s=_HEALTH_S).status
        return status is not None and status < 500  # noqa: PLR2004 - HTTP's server errors

    def how_it_ended(self) -> str:
        """Its end in words, with the last lines of its log."""
        alive = self.is_alive()
        how = "stopped answering" if alive else self._process.how_it_ended
        return f"{how}; last lines of {self._log.path}:\n{self.log_tail(_DETAIL_LINES)}"

    def log_tail(self, lines: int) -> str:
        """The last lines of its log."""
        return self._log.tail(lines)

    def let_go(self) -> None:
        """Begin its end without waiting for it."""
        self._process.let_go()

    def signal(self, number: Signals) -> tuple[int, ...]:
        """Send a signal to all its processes; give their ids."""
        return self._process.signal(number)

    def check(self) -> None:
        """Ask for a short generation again.

        :raises EngineDied: its process has ended.
        :raises EngineError: it does not answer sanely.
        """
        if not self.is_alive():
            raise EngineDied(
                f"Engine {self.engine.name} {self._process.how_it_ended} while it was in use.",
                f"Last lines of {self._log.path}:\n{self.log_tail(_DETAIL_LINES)}",
                "What was measured on it is void.",
            )
        recheck(self.engine)


def recheck(engine: record.Engine) -> None:
    """Ask a server that was ready for a short generation.

    :raises EngineError: it does not answer sanely.
    """
    request = probe.chat(engine.served_model, tools=False)
    path = "/v1/chat/completions"
    answer = probe.ask(engine.url, path, payload=request, timeout_s=60.0)
    if answer.status != 200:  # noqa: PLR2004 - HTTP's OK
        raise readiness.refused(engine.name, engine.url, answer)
    made = probe.generation(answer.body)
    if (wrong := probe.what_is_wrong(made)) is not None:
        raise readiness.insane(engine.name, wrong, made)


@contextmanager
def launch(
    spec: EngineSpec,
    *,
    folder: Path,
    clock: Callable[[], int],
    progress: Callable[[Progress], None],
    round_number: int = 0,
    sleep: Callable[[float], object] = time.sleep,
    cancelled: Callable[[], bool] = lambda: False,
    grace_s: float = GRACE_S,
) -> Iterator[LaunchedEngine]:
    """Boot an engine, yield it ready, and end it with all its processes.

    :param folder: its working directory, made if need be; its log is ``engine.log`` there.
    :param clock: monotonic nanoseconds.
    :param cancelled: asked while waiting; ``True`` gives the boot up.
    :param grace_s: seconds to end by itself before it is killed.
    :raises UsageError: its Python is not there.
    :raises EngineDied: its process ended before it was ready.
    :raises EngineLate: it made no progress for the spec's deadline, or reached its cap.
    :raises EngineForeign: its port is somebody else's.
    :raises EngineError: memory is short, it answers and not as it must, or it would not end.
    """
    python = python_of(spec)
    watch = Stopwatch(spec.name, clock=clock, progress=progress)
    ownership.require_available(spec.name, spec.min_available_bytes)
    reservation = ownership.Reservation(spec.port)
    try:
        spec = materials.provide(spec, tell=watch.tick)
        watch.enter(IMPORTING)
        with _started(spec, python, folder, reservation.port, grace_s) as started:
            command, model, process, log = started
            boot = readiness.Boot(
                spec=spec,
                command=command,
                process=process,
                url=f"http://{ownership.HOST}:{reservation.port}",
                port=reservation.port,
                model=model,
                log=log,
                watch=watch,
                clock=clock,
                sleep=sleep,
                cancelled=cancelled,
            )
            files = materials.build_digest(python, spec.module)
            subject = build.described(spec, python) | {"engine_files": files}
            facts = readiness.wait(boot)
            yield LaunchedEngine(_record(boot, facts, subject, round_number), process, log)
    finally:
        reservation.release()


def command_of(spec: EngineSpec, *, python: str, port: str, model: str) -> tuple[str, ...]:
    """The whole command of one boot."""
    address = ("--host", ownership.HOST, "--port", port, "--served-model-name", model)
    host = () if "--host" in spec.arguments else address[:2]
    return (python, "-m", spec.module, *spec.arguments, *host, *address[2:])


def python_of(spec: EngineSpec) -> str:
    """The engine's Python as a path.

    :raises UsageError: it is not there.
    """
    found = shutil.which(spec.python)
    if found is None:
        raise UsageError(
            f"The Python of engine {spec.name} is not there: {spec.python}.",
            f"The profile {spec.profile} or LLMPERF_ENGINE_PYTHON names it.",
            "Nothing was booted. Install the engine's environment, or name its Python.",
        )
    return found


@contextmanager
def _started(
    spec: EngineSpec, python: str, folder: Path, port: int, grace_s: float
) -> Iterator[tuple[tuple[str, ...], str, EngineProcess, BootLog]]:
    folder.mkdir(parents=True, exist_ok=True)
    model = f"{spec.name}-{secrets.token_hex(4)}"
    command = command_of(spec, python=python, port=str(port), model=model)
    log = BootLog(folder.resolve() / "engine.log")
    process = EngineProcess(
        command,
        environment=spec.environment,
        folder=folder.resolve(),
        log=log.path,
        grace_s=grace_s,
    )
    try:
        yield command, model, process, log
    finally:
        process.stop()


def _record(
    boot: readiness.Boot, facts: record.Facts, subject: dict[str, Any], round_number: int
) -> record.Engine:
    return record.Engine(
        boot_id=boot.model,
        name=boot.spec.name,
        round=round_number,
        url=boot.url,
        served_model=boot.model,
        profile=boot.spec.profile,
        command=boot.command,
        environment=boot.spec.environment,
        pid=boot.process.pid,
        log=str(boot.log.path),
        declared=boot.spec.declared,
        facts=facts,
        subject=subject | {"engine_version": facts.version},
        boot_s=round(boot.watch.boot_s, 3),
        phases_s=dict(boot.watch.phases_s),
    )
