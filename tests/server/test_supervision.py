from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import psutil
import pytest

from pytest_llmperf.errors import EngineDied
from pytest_llmperf.server import supervisor
from pytest_llmperf.server.launch import LaunchedEngine
from pytest_llmperf.spec import EngineSpec

Spec = Callable[..., EngineSpec]
Boot = Callable[..., AbstractContextManager[LaunchedEngine]]


Hold = Callable[..., Any]
Gone = Callable[..., bool]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_the_engine_ends_with_the_process_that_holds_it(
    hold: Hold, number: signal.Signals, gone: Gone, spec: Spec
) -> None:
    holder = hold(spec())
    ready = holder.read_until("ready")
    holder.signal(number)
    assert gone([*ready["members"], ready["supervisor"]])


def test_the_engine_ends_with_its_holder_in_mid_boot(
    hold: Hold, tmp_path: Path, gone: Gone, spec: Spec
) -> None:
    holder = hold(spec("mute"))
    holder.read_until("phase")
    deadline = time.monotonic() + 10
    while not (pids := engines_of(tmp_path)) and time.monotonic() < deadline:
        time.sleep(0.02)
    holder.signal(signal.SIGKILL)
    assert pids
    assert gone(pids)


def engines_of(folder: Path) -> list[int]:
    found = []
    for process in psutil.process_iter(["cmdline", "cwd"]):
        here = (process.info["cwd"] or "").startswith(str(folder))
        if here and "stub_engine" in " ".join(process.info["cmdline"] or []):
            found.append(process.pid)
    return found


def test_a_child_that_left_the_session_and_ignores_sigterm_ends_too(
    hold: Hold, gone: Gone, spec: Spec
) -> None:
    holder = hold(spec("has-stray"))
    ready = holder.read_until("ready")
    assert len(ready["members"]) == 2
    holder.signal(signal.SIGKILL)
    assert gone(ready["members"])


def test_a_fork_that_keeps_the_pipe_open_does_not_keep_the_engine(
    hold: Hold, gone: Gone, spec: Spec
) -> None:
    holder = hold(spec(), when="forked")
    ready = holder.read_until("ready")
    forks = [each.pid for each in psutil.Process(holder.process.pid).children()]
    holder.signal(signal.SIGKILL)
    assert gone(ready["members"])
    for pid in set(forks) - {ready["supervisor"]}:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def test_killing_holder_and_supervisor_together_still_ends_the_engine(
    hold: Hold, gone: Gone, spec: Spec
) -> None:
    holder = hold(spec())
    ready = holder.read_until("ready")
    os.kill(ready["supervisor"], signal.SIGKILL)
    holder.signal(signal.SIGKILL)
    assert gone(ready["members"])


def test_teardown_finds_strays_when_the_supervisor_was_killed(
    spec: Spec, boot: Boot, gone: Gone
) -> None:
    with boot(spec("has-stray")) as running:
        members = running._process.members()
        running._process._supervisor.kill()
        running._process._supervisor.wait()
        assert not running.is_alive()
        assert running._process.how_it_ended == "ended because its supervisor was killed"
    assert gone(list(members), within_s=10)


def test_strays_of_an_engine_that_died_while_booting_are_ended(
    spec: Spec, boot: Boot, tmp_path: Path
) -> None:
    with pytest.raises(EngineDied, match="exited with code 4"), boot(spec("has-stray-then-dies")):
        pass
    assert supervised_in(tmp_path) == []


def supervised_in(folder: Path) -> list[int]:
    return [
        process.pid
        for process in psutil.process_iter(["cwd"])
        if (process.info["cwd"] or "").startswith(str(folder))
    ]


def test_an_engine_that_ignores_sigterm_is_killed(spec: Spec, boot: Boot) -> None:
    with boot(spec("stubborn"), grace_s=0.3) as running:
        pass
    assert running.exit_code == -signal.SIGKILL


def test_an_interrupt_at_the_terminal_reaches_neither_engine_nor_supervisor(
    spec: Spec, boot: Boot
) -> None:
    with boot(spec()) as running:
        engine, its_supervisor = running.engine.pid, running._process._supervisor.pid
        assert engine is not None
        assert os.getpgid(engine) == os.getsid(engine) == engine
        assert os.getsid(its_supervisor) == its_supervisor
        os.kill(its_supervisor, signal.SIGINT)
        os.kill(its_supervisor, signal.SIGHUP)
        time.sleep(0.1)
        assert running.is_alive()


def test_an_interrupt_of_the_teardown_leaves_it_to_the_supervisor(
    spec: Spec, boot: Boot, monkeypatch: pytest.MonkeyPatch, gone: Gone
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with boot(spec()) as running:
        members = running._process.members()
        with monkeypatch.context() as patch:
            patch.setattr(running._process._supervisor, "wait", interrupted)
            with pytest.raises(KeyboardInterrupt):
                running._process.stop()
        assert gone(list(members))


def test_other_processes_are_left_alone(spec: Spec, boot: Boot, tmp_path: Path) -> None:
    bystander = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(30)", "stub"], cwd=tmp_path
    )
    with boot(spec("stubborn"), grace_s=0.2):
        pass
    assert bystander.poll() is None
    bystander.kill()
    bystander.wait()


def test_kin_are_known_by_mark_session_and_descent() -> None:
    sleeper = "import time; time.sleep(30)"
    environment = {**os.environ, supervisor.NONCE_VARIABLE: "0123"}
    marked = subprocess.Popen([sys.executable, "-c", sleeper], env=environment)
    apart = subprocess.Popen([sys.executable, "-c", sleeper], start_new_session=True)
    try:
        deadline = time.monotonic() + 5
        while not supervisor.marked("0123") and time.monotonic() < deadline:
            time.sleep(0.01)
        assert supervisor.kin("0123") == {marked.pid}
        assert supervisor.kin("0123", session=apart.pid) == {marked.pid, apart.pid}
        assert supervisor.kin("none", ancestor=os.getpid()) >= {marked.pid, apart.pid}
        assert supervisor.born(marked.pid) is not None
    finally:
        for each in (marked, apart):
            each.kill()
            each.wait()
    assert supervisor.kin("0123", session=apart.pid) == set()
    assert supervisor.born(marked.pid) is None
