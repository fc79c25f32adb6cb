from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import msgspec
import pytest

from pytest_llmperf import record
from pytest_llmperf.errors import EngineDied, EngineError, HostBusy, NotAttached
from pytest_llmperf.server import ownership, supervisor
from pytest_llmperf.server.bootlog import Progress
from pytest_llmperf.server.launch import LaunchedEngine, RunningEngine
from pytest_llmperf.server.pool import EnginePool
from pytest_llmperf.server.process import EngineProcess
from pytest_llmperf.spec import EngineSpec

Spec = Callable[..., EngineSpec]
Boot = Callable[..., AbstractContextManager[LaunchedEngine]]
Pool = Callable[..., EnginePool]


class Books:
    """What a pool has told."""

    def __init__(self) -> None:
        self.boots: list[record.Engine] = []
        self.ends: list[record.EngineEnd] = []


@pytest.fixture
def books() -> Books:
    return Books()


@pytest.fixture
def pool(tmp_path: Path, books: Books, told: list[Progress]) -> Iterator[Pool]:
    pools: list[EnginePool] = []

    def make(resident: int = 2, attachments: dict[str, str] | None = None) -> EnginePool:
        pools.append(
            EnginePool(
                resident=resident,
                folder=tmp_path / "engines",
                clock=time.monotonic_ns,
                progress=told.append,
                attachments=attachments or {},
                on_boot=books.boots.append,
                on_end=books.ends.append,
            )
        )
        return pools[-1]

    yield make
    for each in pools:
        each.close()


@pytest.fixture
def no_wait_for_memory(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    waits: list[bool] = []

    def wait(**_: object) -> float:
        waits.append(True)
        return 0.0

    monkeypatch.setattr(ownership, "wait_until_memory_is_level", wait)
    return waits


def test_one_configuration_is_booted_once_whoever_asks(
    spec: Spec, pool: Pool, books: Books
) -> None:
    engines = pool()
    first = engines.lease(spec())
    assert engines.lease(spec(name="the same under another name")) is first
    assert [each.name for each in books.boots] == ["gemma"]
    engines.close()
    assert [(each.boot_id, each.ending) for each in books.ends] == [
        (first.engine.boot_id, "stopped")
    ]


def test_copies_of_one_configuration_are_two_engines(spec: Spec, pool: Pool) -> None:
    one, two = pool().lease_many([spec(), spec(copy=1)])
    assert one.engine.pid != two.engine.pid


def test_where_two_fit_both_stay_up(spec: Spec, pool: Pool, books: Books) -> None:
    engines = pool(resident=2)
    one, two = engines.lease_many([spec(), spec("slow", name="other")])
    assert engines.lease(spec()) is one
    assert two.is_alive()
    assert len(books.boots) == 2


def test_a_third_takes_the_place_of_the_one_used_longest_ago(
    spec: Spec, pool: Pool, books: Books
) -> None:
    engines = pool(resident=2)
    one, two = engines.lease_many([spec(), spec(copy=1)])
    engines.lease(spec())
    engines.lease(spec(copy=2))
    assert one.is_alive()
    assert not two.is_alive()
    assert [each.boot_id for each in books.ends] == [two.engine.boot_id]


def test_where_one_fits_the_idle_one_ends_and_memory_comes_back_first(
    spec: Spec, pool: Pool, books: Books, no_wait_for_memory: list[bool]
) -> None:
    engines = pool(resident=1)
    one = engines.lease(spec())
    two = engines.lease(spec(copy=1))
    assert not one.is_alive()
    assert two.is_alive()
    assert no_wait_for_memory == [True]
    assert books.ends[0].boot_id == one.engine.boot_id


def test_the_wait_for_memory_is_told(
    spec: Spec, pool: Pool, no_wait_for_memory: list[bool], told: list[Progress]
) -> None:
    engines = pool(resident=1)
    engines.lease(spec())
    engines.lease(spec(), round_number=1)
    assert no_wait_for_memory == [True]  # also where the one before ended with its round
    phases = [each.phase for each in told if each.engine == "the next engine"]
    assert [each.partition(" (")[0] for each in phases] == ["memory level again"]


def test_the_needs_of_engines_that_boot_side_by_side_add_up(
    spec: Spec, pool: Pool, books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ownership, "available_bytes", lambda: 5 * 2**30)
    needy = [
        msgspec.structs.replace(spec(copy=copy), min_available_bytes=3 * 2**30) for copy in (0, 1)
    ]
    with pytest.raises(EngineError, match="gemma and gemma was not booted"):
        pool().lease_many(needy)
    assert books.boots == []


def test_nothing_boots_where_the_host_is_not_to_be_had(
    spec: Spec, tmp_path: Path, books: Books
) -> None:
    def busy() -> None:
        raise HostBusy("another job measures", "", "")

    engines = EnginePool(
        resident=1,
        folder=tmp_path,
        clock=time.monotonic_ns,
        progress=lambda _: None,
        attachments={},
        on_boot=books.boots.append,
        on_end=books.ends.append,
        before_open=busy,
    )
    with pytest.raises(HostBusy):
        engines.lease(spec())
    assert books.boots == []


def test_as_many_come_up_as_fit(spec: Spec, pool: Pool) -> None:
    engines = pool(resident=1)
    (only,) = engines.lease_many([spec(), spec(copy=1)])
    assert only.is_alive()


def test_each_round_has_boots_of_its_own(spec: Spec, pool: Pool, books: Books) -> None:
    engines = pool()
    first = engines.lease(spec(), 0)
    second = engines.lease(spec(), 1)
    assert not first.is_alive()
    assert [each.round for each in books.boots] == [0, 1]
    assert second.engine.boot_id != first.engine.boot_id


def test_one_found_dead_is_booted_once_more_and_both_are_told(
    spec: Spec, pool: Pool, books: Books
) -> None:
    engines = pool()
    first = engines.lease(spec())
    kill(first)
    second = engines.lease(spec())
    assert second.is_alive()
    assert [each.boot_id for each in books.boots] == [first.engine.boot_id, second.engine.boot_id]
    (end,) = books.ends
    assert end.at_ns is not None
    assert (end.boot_id, end.ending, end.exit_code) == (first.engine.boot_id, "died", -9)
    assert end.detail is not None
    assert end.detail.startswith("was killed by SIGKILL; last lines of ")
    kill(second)
    with pytest.raises(EngineDied) as twice:
        engines.lease(spec())
    assert twice.value.what == (
        "Engine gemma died twice while it was in use; it is not booted again."
    )
    assert twice.value.evidence.startswith("The second time it was killed by SIGKILL; last lines")
    assert twice.value.next_step == "What was measured on it is void. Find the cause in its logs."
    assert len(books.boots) == 2


def kill(running: RunningEngine) -> None:
    assert running.engine.pid is not None
    os.kill(running.engine.pid, signal.SIGKILL)
    wait_for_death(running)


def wait_for_death(running: RunningEngine) -> None:
    deadline = time.monotonic() + 10
    while running.is_alive() and time.monotonic() < deadline:
        time.sleep(0.02)


def test_one_that_hangs_is_as_good_as_dead(spec: Spec, pool: Pool, books: Books) -> None:
    engines = pool()
    engines.lease(spec("unhealthy-later"))
    engines.lease(spec("unhealthy-later"))
    assert len(books.boots) == 2
    assert books.ends[0].ending == "died"
    assert books.ends[0].detail is not None
    assert books.ends[0].detail.startswith("stopped answering; last lines of ")


def test_a_boot_that_failed_is_not_tried_again(
    spec: Spec, pool: Pool, books: Books, tmp_path: Path
) -> None:
    engines = pool()
    with pytest.raises(EngineDied) as first:
        engines.lease(spec("dies"))
    with pytest.raises(EngineDied) as again:
        engines.lease(spec("dies"))
    assert again.value is first.value
    assert books.boots == []
    assert [each.name for each in (tmp_path / "engines").iterdir()] == ["01-gemma"]


def test_one_that_fails_does_not_take_the_other_down(spec: Spec, pool: Pool, books: Books) -> None:
    engines = pool()
    with pytest.raises(EngineDied):
        engines.lease_many([spec("dies", name="bad"), spec()])
    assert [each.name for each in books.boots] == ["gemma"]
    assert engines.lease(spec()).is_alive()
    assert len(books.boots) == 1


def test_an_interrupt_while_booting_leaves_nothing(spec: Spec, pool: Pool, books: Books) -> None:
    engines = pool()
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        engines.lease_many([spec("mute"), spec("mute", copy=1)])
    assert books.boots == []


def test_closing_ends_all_in_spite_of_an_interrupt(
    spec: Spec, pool: Pool, books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    engines = pool()
    one, two = engines.lease_many([spec(), spec(copy=1)])
    true_stop = EngineProcess.stop
    calls: list[EngineProcess] = []

    def interrupted_once(process: EngineProcess) -> None:
        calls.append(process)
        if len(calls) == 1:
            raise KeyboardInterrupt
        true_stop(process)

    monkeypatch.setattr(EngineProcess, "stop", interrupted_once)
    with pytest.raises(KeyboardInterrupt):
        engines.close()
    wait_for_death(one)
    assert not one.is_alive()
    assert not two.is_alive()
    assert [each.ending for each in books.ends] == ["stopped", "stopped"]
    true_stop(calls[0])


def test_no_engine_is_booted_beside_an_orphan(
    spec: Spec, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    engines = pool(resident=1)
    engines.lease(spec())
    me = {os.getpid(): supervisor.born(os.getpid())}

    def leaves_one(process: EngineProcess) -> None:
        true_stop(process)
        raise ownership.Orphaned(me)

    true_stop = EngineProcess.stop
    with monkeypatch.context() as patch:
        patch.setattr(EngineProcess, "stop", leaves_one)
        with pytest.raises(EngineError):
            engines.close()
    with pytest.raises(EngineError) as refused:
        engines.lease(spec(copy=1))
    assert refused.value.what == "1 process of a stopped engine would not end."
    assert refused.value.evidence.startswith(f"Still alive: process {os.getpid()} (")
    assert refused.value.next_step == ("End them by hand; no further engine is booted beside them.")


def test_what_is_not_attached_is_told_apart_from_a_fault(spec: Spec, pool: Pool) -> None:
    engines = pool(attachments={"gemma": "http://127.0.0.1:9"})
    with pytest.raises(NotAttached) as missing:
        engines.lease(spec(name="gemma_autoregressive"))
    assert str(missing.value) == (
        "The engine gemma_autoregressive is not attached.\n"
        "Attached are: gemma=http://127.0.0.1:9.\n"
        "Add --llmperf-attach gemma_autoregressive=URL to measure it too."
    )
    pool().check_attached("gemma_autoregressive")


def test_an_attached_engine_is_leased_like_any_other_and_left_running(
    spec: Spec, pool: Pool, boot: Boot, books: Books
) -> None:
    with boot(spec()) as theirs:
        engines = pool(resident=1, attachments={"gemma": theirs.url, "other": theirs.url})
        one, two = engines.lease_many([spec(), spec(name="other")])
        assert one.engine.attached
        assert one.url == two.url == theirs.url
        assert engines.lease(spec()) is one
        engines.close()
        assert theirs.is_alive()
        assert [each.ending for each in books.ends] == ["stopped", "stopped"]
