"""One lock for the host: two jobs never measure at once, and nobody waits for the dead."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from pytest_llmperf.errors import HostBusy, UsageError
from pytest_llmperf.machine import HostLock, default_lock, host
from pytest_llmperf.machine.lock import HELD_VARIABLE, Holder, read_holder


class World:
    """A clock that only sleeping moves, and what was told."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.now_s = 0.0
        self.told: list[str] = []
        self.meanwhile: Callable[[], None] = lambda: None

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        self.meanwhile()

    def lock(self, wait_s: float = 25.0) -> HostLock:
        return HostLock(
            self.path,
            wait_s=wait_s,
            command="pytest perf_suites",
            clock=lambda: round(self.now_s * 1e9),
            sleep=self.sleep,
            tell=self.told.append,
        )


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.delenv(HELD_VARIABLE, raising=False)
    return World(tmp_path / "host.lock")


HOLD = """
import fcntl, os, sys, msgspec
from pytest_llmperf.machine import host
from pytest_llmperf.machine.lock import Holder
from pytest_llmperf.machine.family import process
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
fcntl.flock(file, fcntl.LOCK_EX)
me = Holder(pid=os.getpid(), started=process(os.getpid()).started, boot_id=host.boot_id(),
            namespace=host.pid_namespace(), command="another job")
os.write(file, msgspec.json.encode(me))
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def other_job(world: World) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lock."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(world.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as job:
        assert job.stdout is not None
        assert job.stdout.readline() == "held\n"
        yield job
        job.kill()


def test_a_free_lock_is_taken_and_signed_and_let_go(world: World) -> None:
    lock = world.lock()
    lock.acquire()
    lock.acquire()
    holder = read_holder(world.path)
    assert holder is not None
    assert (holder.pid, holder.boot_id, holder.command) == (
        os.getpid(),
        host.boot_id(),
        "pytest perf_suites",
    )
    lock.release()
    lock.release()
    assert (read_holder(world.path), HELD_VARIABLE in os.environ) == (None, False)
    assert world.told == []


def test_whoever_waits_says_for_whom_and_gives_up_with_clear_words(
    world: World, other_job: subprocess.Popen[str]
) -> None:
    lock = world.lock()
    with pytest.raises(HostBusy) as caught:
        lock.acquire()
    who = f"process {other_job.pid} (another job)"
    assert world.told == [
        f"waiting for the host: {who} measures, {waited} s so far" for waited in (0, 10, 20)
    ]
    assert str(caught.value) == (
        f"Nothing was measured: {who} has measured on this host for all of the 25 s that it was"
        f" waited for.\nIt holds {world.path}.\n"
        "Wait for it to end, or give it longer with --llmperf-lock-wait SECONDS."
    )


def test_who_gave_up_once_does_not_wait_again(
    world: World,
    other_job: subprocess.Popen[str],
) -> None:
    lock = world.lock()
    for _ in range(2):
        with pytest.raises(HostBusy):
            lock.acquire()
    assert world.now_s == 25.0


def test_the_lock_is_free_once_its_holder_is_killed(
    world: World, other_job: subprocess.Popen[str]
) -> None:
    def kill() -> None:
        other_job.kill()
        other_job.wait()

    world.meanwhile = kill
    lock = world.lock()
    lock.acquire()
    lock.release()
    assert world.now_s == 0.25


def test_what_a_dead_holder_left_open_is_overruled(world: World) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    left = os.open(world.path, os.O_RDWR | os.O_CREAT)
    fcntl.flock(left, fcntl.LOCK_EX)
    signed = Holder(pid=gone.pid, boot_id=host.boot_id(), namespace=host.pid_namespace())
    os.write(left, msgspec.json.encode(signed))
    lock = world.lock()
    lock.acquire()
    lock.release()
    os.close(left)


@pytest.mark.parametrize("field", ["boot_id", "namespace"])
def test_nobody_is_known_to_be_dead_in_another_world(field: str) -> None:
    here = Holder(pid=2**30, boot_id=host.boot_id(), namespace=host.pid_namespace())
    assert not msgspec.structs.replace(here, **{field: "elsewhere"}).is_gone()
    assert here.is_gone()


def test_two_sessions_of_one_process_hold_it_together(world: World) -> None:
    outer, inner = world.lock(), world.lock()
    outer.acquire()
    inner.acquire()
    inner.release()
    assert read_holder(world.path) is not None
    outer.release()


def test_a_pytest_below_one_that_holds_it_goes_through(world: World) -> None:
    outer = world.lock()
    outer.acquire()
    script = (
        "import sys, time; from pathlib import Path\n"
        "from pytest_llmperf.machine import HostLock\n"
        "lock = HostLock(Path(sys.argv[1]), wait_s=0, command='', clock=time.monotonic_ns,"
        " sleep=time.sleep, tell=print)\n"
        "lock.acquire(); lock.release()\n"
    )
    below = [sys.executable, "-c", script, str(world.path)]
    assert subprocess.run(below, check=False).returncode == 0
    stranger = {name: value for name, value in os.environ.items() if name != HELD_VARIABLE}
    refused = subprocess.run(below, check=False, env=stranger, capture_output=True, text=True)
    assert "HostBusy" in refused.stderr
    outer.release()


def test_a_lock_that_cannot_be_opened_is_a_clear_error(tmp_path: Path) -> None:
    lock = World(tmp_path / "missing" / "host.lock").lock()
    with pytest.raises(UsageError) as caught:
        lock.acquire()
    assert str(caught.value) == (
        f"The host's lock {tmp_path / 'missing' / 'host.lock'} cannot be opened.\n"
        "The system says: No such file or directory.\n"
        "Name a file that every job on this host may write: --llmperf-lock FILE."
    )


def test_every_user_may_wait_at_the_same_file(world: World) -> None:
    lock = world.lock()
    lock.acquire()
    assert world.path.stat().st_mode & 0o777 == 0o666
    lock.release()


def test_the_default_is_one_file_for_all_jobs_of_the_host(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert default_lock() == Path("/", "tmp", "pytest-llmperf.lock")
