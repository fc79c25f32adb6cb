"""Engines that are made to fail: the signal reaches all of them, and nothing stays behind."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from pytest_llmperf import record
from pytest_llmperf.errors import UsageError
from pytest_llmperf.server.attach import AttachedEngine
from pytest_llmperf.server.bootlog import Progress
from pytest_llmperf.server.launch import LaunchedEngine
from pytest_llmperf.server.pool import EnginePool
from pytest_llmperf.spec import EngineSpec
from pytest_llmperf.testing import an_engine

Spec = Callable[..., EngineSpec]
Boot = Callable[..., AbstractContextManager[LaunchedEngine]]


def comes_to(state: str, pid: int, *, within_s: float = 10.0) -> bool:
    """Whether a process reaches a state; one on another core takes a moment to obey."""
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
        if stat.rpartition(")")[2].split()[0] == state:
            return True
        time.sleep(0.005)
    return False


def test_a_frozen_engine_stands_still_and_goes_on_when_thawed(spec: Spec, boot: Boot) -> None:
    with boot(spec()) as engine:
        pid = engine.engine.pid
        assert pid is not None
        assert engine.signal(signal.SIGSTOP) == (pid,)
        assert engine.is_alive()
        assert comes_to("T", pid)
        engine.signal(signal.SIGCONT)
        assert engine.is_healthy()


def test_a_frozen_engine_ends_at_once_when_it_is_stopped(
    spec: Spec, boot: Boot, gone: Callable[..., bool]
) -> None:
    with boot(spec(), grace_s=60.0) as engine:
        pid = engine.engine.pid
        assert pid is not None
        engine.signal(signal.SIGSTOP)
        begun = time.monotonic()
    assert gone([pid], within_s=10.0)
    assert time.monotonic() - begun < 30.0  # it did not sit out its grace


def test_a_frozen_engine_that_is_deaf_is_killed_in_the_end(
    spec: Spec, boot: Boot, gone: Callable[..., bool]
) -> None:
    with boot(spec("stubborn"), grace_s=0.5) as engine:
        pid = engine.engine.pid
        assert pid is not None
        engine.signal(signal.SIGSTOP)
    assert gone([pid], within_s=10.0)


def test_an_attached_server_is_never_made_to_fail() -> None:
    attached = AttachedEngine(an_engine(url="http://10.0.0.2:8000", attached=True))
    with pytest.raises(UsageError) as raised:
        attached.signal(signal.SIGKILL)
    assert str(raised.value) == (
        "SIGKILL cannot be sent to gemma at http://10.0.0.2:8000.\n"
        "It is attached: its processes belong to somebody else.\n"
        "Let the profile boot the servers (run without --llmperf-attach) to make one fail."
    )


def test_one_that_was_killed_on_purpose_boots_again_however_often(
    spec: Spec, tmp_path: Path, told: list[Progress]
) -> None:
    ends: list[record.EngineEnd] = []
    pool = EnginePool(
        resident=2,
        folder=tmp_path / "engines",
        clock=time.monotonic_ns,
        progress=told.append,
        attachments={},
        on_boot=lambda _: None,
        on_end=ends.append,
    )
    pids = set()
    try:
        for _ in range(3):
            engine = pool.lease(spec())
            pids.add(engine.engine.pid)
            engine.signal(signal.SIGKILL)
            pool.put_out(engine)
        assert pool.lease(spec()).is_healthy()
    finally:
        pool.close()
    assert len(pids) == 3
    assert [(each.ending, each.exit_code) for each in ends[:3]] == [("died", -signal.SIGKILL)] * 3
    assert all(each.at_ns is not None for each in ends)
    assert not any(pid is not None and os.path.exists(f"/proc/{pid}") for pid in pids)  # noqa: PTH110 - one look
