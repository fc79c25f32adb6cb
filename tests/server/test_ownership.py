from __future__ import annotations

import os
import socket
from typing import Any

import pytest

from pytest_llmperf.errors import EngineError
from pytest_llmperf.server import ownership, supervisor
from pytest_llmperf.server.ownership import (
    Orphaned,
    Reservation,
    accepts,
    listeners,
    refuse_orphans,
    require_available,
    wait_until_memory_is_level,
)


def test_who_listens_is_known_by_process() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert accepts(port)
        assert listeners(port) == {os.getpid()}
    assert not accepts(port)
    assert listeners(port) == set()


def test_a_reserved_port_is_given_to_nobody_and_lets_the_engine_bind() -> None:
    reservation = Reservation()
    assert not accepts(reservation.port)
    assert listeners(reservation.port) == set()
    others = [Reservation() for _ in range(20)]
    assert reservation.port not in [each.port for each in others]
    with socket.create_server(("127.0.0.1", reservation.port)):
        assert listeners(reservation.port) == {os.getpid()}
    for each in (reservation, *others):
        each.release()


def scripted(readings: list[int]) -> dict[str, Any]:
    """A clock that moves only by sleeping, and a reading for each look."""
    now = [0]
    rest = iter(readings)
    last = readings[-1]

    def sleep(seconds: float) -> None:
        now[0] += int(seconds * 1e9)

    return {
        "clock": lambda: now[0],
        "sleep": sleep,
        "read": lambda: next(rest, last),
        "total_bytes": 1000,  # so that 5 bytes more or less are level
    }


def test_memory_that_is_level_is_waited_for_no_longer_than_it_takes_to_see() -> None:
    assert wait_until_memory_is_level(**scripted([500])) == pytest.approx(2.0)


def test_memory_that_comes_back_late_is_waited_for() -> None:
    # Ten looks, a quarter of a second apart, each 20 bytes up; then level for 2 s.
    rising = [500 + 20 * step for step in range(11)]
    assert wait_until_memory_is_level(**scripted(rising)) == pytest.approx(2.5 + 2.0)


def test_memory_that_is_never_level_is_waited_for_to_the_bound() -> None:
    wild = [500, 900] * 1000
    waited = wait_until_memory_is_level(**scripted(wild), bound_s=30)
    assert waited == pytest.approx(30.0)


def test_a_machine_that_is_short_of_memory_boots_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ownership, "available_bytes", lambda: 40 * 2**30)
    require_available("gemma", None)
    require_available("gemma", 40 * 2**30)
    with pytest.raises(EngineError) as short:
        require_available("gemma", 100 * 2**30)
    assert str(short.value) == (
        "Engine gemma was not booted: 40.0 GiB of memory are available and the profile asks for"
        " 100.0 GiB.\n"
        "MemAvailable is 40960 MiB.\n"
        "Stop what holds the memory, or lower [engine] min_available_gib and the engine's share."
    )


def test_an_orphan_is_one_process_and_not_the_next_user_of_its_id() -> None:
    started = supervisor.born(os.getpid())
    assert started is not None
    refuse_orphans({})
    refuse_orphans({os.getpid(): started + 1, 2**22 - 1: 5, os.getpid() + 10**7: None})
    with pytest.raises(Orphaned):
        refuse_orphans({os.getpid(): started})
