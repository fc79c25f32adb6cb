from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from pytest_llmperf.record import Declared
from pytest_llmperf.server import readiness
from pytest_llmperf.server.bootlog import Progress
from pytest_llmperf.server.launch import LaunchedEngine, launch
from pytest_llmperf.spec import EngineSpec

STUBS = Path(__file__).with_name("stubs")
HOLDER = STUBS / "holder.py"

Spec = Callable[..., EngineSpec]
Boot = Callable[..., AbstractContextManager[LaunchedEngine]]


@pytest.fixture
def spec() -> Spec:
    """A spec of the stub engine with one way of behaving."""

    def make(
        behaviour: str = "healthy",
        *,
        name: str = "gemma",
        deadline_s: float = 10.0,
        cap_s: float = 30.0,
        port: int | None = None,
        declared: Declared | None = None,
        copy: int = 0,
    ) -> EngineSpec:
        return EngineSpec(
            name=name,
            profile="stub",
            python=sys.executable,
            module="stub_engine",
            arguments=("--behaviour", behaviour),
            environment={"PYTHONPATH": str(STUBS)},
            declared=declared or Declared(),
            deadline_s=deadline_s,
            cap_s=cap_s,
            port=port,
            copy=copy,
        )

    return make


@pytest.fixture
def told() -> list[Progress]:
    """What was told of boots."""
    return []


@pytest.fixture
def boot(tmp_path: Path, told: list[Progress]) -> Boot:
    """Launch a spec in a folder of this test."""

    def begin(spec: EngineSpec, **options: object) -> AbstractContextManager[LaunchedEngine]:
        return launch(
            spec,
            folder=tmp_path / "engine",
            clock=time.monotonic_ns,
            progress=told.append,
            **options,  # type: ignore[arg-type]
        )

    return begin


class Holder:
    """A process that holds an engine and says what it sees."""

    def __init__(self, spec: EngineSpec, folder: Path, when: str = "ready") -> None:
        command = [
            sys.executable,
            str(HOLDER),
            msgspec.json.encode(spec).decode(),
            str(folder),
            when,
        ]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def read_until(self, key: str) -> dict[str, Any]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            facts: dict[str, Any] = json.loads(line)
            if key in facts:
                return facts
        raise AssertionError(f"the holder ended without {key}")

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)
        self.process.wait(10)


Hold = Callable[..., Holder]


@pytest.fixture
def hold(tmp_path: Path) -> Iterator[Hold]:
    """Have another process hold an engine."""
    holders: list[Holder] = []

    def make(spec: EngineSpec, when: str = "ready") -> Holder:
        holders.append(Holder(spec, tmp_path / "held", when))
        return holders[-1]

    yield make
    for holder in holders:
        holder.process.kill()
        holder.process.wait()
        assert holder.process.stdout is not None
        holder.process.stdout.close()


@pytest.fixture
def gone() -> Callable[..., bool]:
    """Tell whether processes have ended within some seconds; zombies have."""

    def tell(pids: list[int], within_s: float = 10.0) -> bool:
        deadline = time.monotonic() + within_s
        while any(_is_alive(pid) for pid in pids):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True

    return tell


def _is_alive(pid: int) -> bool:
    with contextlib.suppress(psutil.Error):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


@pytest.fixture(autouse=True)
def _looked_at_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stub is up in a tenth of a second, so boots are looked at more often than an engine's."""
    monkeypatch.setattr(readiness, "_POLL_S", 0.02)


@pytest.fixture(autouse=True)
def _no_process_is_left() -> Iterator[None]:
    """Every test of this folder ends without a stub; a supervisor may still be at its work."""
    yield
    deadline = time.monotonic() + 10
    while (left := stubs_alive()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert left == []


def stubs_alive() -> list[str]:
    """Command lines of stubs and supervisors that this test run has started."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        line = " ".join(process.info["cmdline"] or [])
        ours = "stub_engine" in line or "server/supervisor.py" in line
        if ours and str(STUBS) in _environment(process):
            found.append(line)
    return found


def _environment(process: psutil.Process) -> str:
    try:
        return process.environ().get("PYTHONPATH", "")
    except psutil.Error:
        return ""
