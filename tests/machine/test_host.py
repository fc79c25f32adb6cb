"""What the kernel's files say of the machine, and of whose its CPU time was."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_llmperf.fitness import Other
from pytest_llmperf.machine import host
from pytest_llmperf.machine.family import Family, ancestors, below, processes

Write = Callable[[dict[str, str]], Path]


@pytest.fixture(autouse=True)
def _a_hundred_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "ticks", lambda: 100)


def stat(pid: int, name: str, parent: int, cpu_ticks: int, started: int = 5) -> dict[str, str]:
    fields = ["S", str(parent), *("0" * 9), str(cpu_ticks), "0", *("0" * 6), str(started)]
    return {f"proc/{pid}/stat": f"{pid} ({name}) {' '.join(fields)}\n"}


def test_cpu_time_is_counted_on_our_cores_without_idling_waiting_and_guests_twice(
    made_up: Path,
) -> None:
    found = host.cpu_time(made_up, {0, 1})
    assert found == host.CpuTime(cores=2, busy_s=4.05, steal_s=0.1)


def test_all_cores_count_where_the_system_does_not_say_which_are_ours(made_up: Path) -> None:
    found = host.cpu_time(made_up)
    assert found is not None
    assert (found.cores, found.busy_s) == (3, 94.05)


def test_pressure_is_in_seconds_and_only_of_what_the_kernel_has(made_up: Path) -> None:
    assert host.stalled_s(made_up) == {"cpu": 4.0, "memory": 2.5}


def test_everything_else_is_in_base_units(made_up: Path) -> None:
    assert {
        "load": host.load(made_up),
        "mhz": host.mhz(made_up, {0, 1}),
        "available": host.available_bytes(made_up),
        "total": host.total_bytes(made_up),
        "swapped": host.swapped_bytes(made_up),
        "throttled": host.throttle_events(made_up),
        "zones": host.zones_c(made_up),
    } == {
        "load": 1.5,
        "mhz": (2100.0, 2200.0),
        "available": 512 * 1024,
        "total": 2048 * 1024,
        "swapped": 5 * 4096,
        "throttled": 5,
        "zones": {"soc": 53.0, "soc zone1": 61.5},
    }


def test_cpufreq_knows_better_than_cpuinfo(made_up: Path, written: Write) -> None:
    written({"sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq": "3400000\n"})
    assert host.mhz(made_up, {0}) == (3400.0,)


def test_what_cannot_be_read_is_none_and_never_zero(tmp_path: Path) -> None:
    read = (
        host.cpu_time,
        host.stalled_s,
        host.load,
        host.mhz,
        host.available_bytes,
        host.swapped_bytes,
        host.throttle_events,
        host.zones_c,
        host.boot_id,
        host.pid_namespace,
    )
    assert [each(tmp_path) for each in read] == [None] * len(read)


def test_an_old_kernel_without_steal_time_gives_no_cpu_time(written: Write) -> None:
    assert host.cpu_time(written({"proc/stat": "cpu0 1 2 3 4\n"})) is None


def test_whoever_descends_from_us_is_ours(written: Write) -> None:
    root = written(
        stat(10, "pytest", 1, 100)
        | stat(11, "supervisor", 10, 1)
        | stat(12, "VLLM::EngineCor) (x", 11, 700)
        | stat(20, "cc1plus", 1, 300)
    )
    assert below([10], processes(root)) == {10, 11, 12}
    assert ancestors(12, root) == [11, 10, 1]


def test_our_time_stays_counted_when_a_process_ends(written: Write) -> None:
    root = written(stat(10, "pytest", 1, 100) | stat(11, "worker", 10, 50))
    family = Family([10], root)
    family.meet()
    (root / "proc/11/stat").unlink()
    written(stat(10, "pytest", 1, 160))
    assert family.cpu_s() == pytest.approx(2.1)


def test_a_number_that_passed_to_somebody_else_is_not_ours(written: Write) -> None:
    root = written(stat(10, "pytest", 1, 100) | stat(11, "worker", 10, 50))
    family = Family([10], root)
    family.meet()
    written(stat(11, "stranger", 1, 90_000, started=99))
    assert family.cpu_s() == pytest.approx(1.5)


def test_the_busiest_strangers_are_named_with_what_they_took_in_the_window(written: Write) -> None:
    root = written(
        stat(10, "pytest", 1, 100) | stat(20, "cc1plus", 1, 300) | stat(21, "sshd", 1, 900)
    )
    family = Family([10], root)
    family.meet()
    written(stat(20, "cc1plus", 1, 800) | stat(22, "ld", 1, 200) | stat(10, "pytest", 1, 999))
    assert family.busiest() == (
        Other(pid=20, name="cc1plus", cpu_s=5.0),
        Other(pid=22, name="ld", cpu_s=2.0),
    )
