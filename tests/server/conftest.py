from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import psutil
import pytest

from pytest_llmperf.record import Declared
from pytest_llmperf.server.bootlog import Progress
from pytest_llmperf.server.launch import LaunchedEngine, launch
from pytest_llmperf.spec import EngineSpec

STUBS = Path(__file__).with_name("stubs")

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
