"""The bandwidth probe: it reads memory for real, and whatever keeps it from doing so is named."""

from __future__ import annotations

import sys
from pathlib import Path

from pytest_llmperf.server import bandwidth
from pytest_llmperf.testing import an_engine

SMALL = 8 * 2**20


def test_reading_memory_gives_bytes_a_second_for_each_pass() -> None:
    engine = an_engine(command=(sys.executable,), environment={"OMP_NUM_THREADS": "1"})
    found = bandwidth.probe(engine, "m0", repetitions=3, most_bytes=SMALL)
    assert found.problem is None
    assert (found.measurement_id, found.boot_id, found.device) == ("m0", "b0", "cpu")
    assert found.engine_threads == 1
    assert found.array_bytes == SMALL
    assert {each.threads for each in found.series} >= {1}
    assert all(len(each.bytes_per_s) == 3 for each in found.series)
    assert all(rate > 0 for each in found.series for rate in each.bytes_per_s)


def test_a_server_that_is_attached_is_not_probed() -> None:
    found = bandwidth.probe(an_engine(attached=True), "m0")
    assert found.series == ()
    assert found.problem == (
        "the server is attached: where it runs, and on which memory, is not known"
    )


def test_a_probe_that_fails_says_how(tmp_path: Path) -> None:
    script = tmp_path / "broken.py"
    script.write_text("raise MemoryError('none left')", encoding="utf-8")
    found = bandwidth.probe(an_engine(command=(sys.executable,)), "m0", script=script)
    assert found.problem == (
        "the bandwidth probe failed: it ended with exit code 1: MemoryError: none left"
    )


def test_a_probe_that_says_something_else_is_named(tmp_path: Path) -> None:
    script = tmp_path / "chatty.py"
    script.write_text("print('hello')", encoding="utf-8")
    found = bandwidth.probe(an_engine(command=(sys.executable,)), "m0", script=script)
    assert (found.problem or "").startswith("the bandwidth probe failed: JSONDecodeError: ")


def test_an_engine_s_python_that_is_gone_is_named(tmp_path: Path) -> None:
    engine = an_engine(command=(str(tmp_path / "python"),))
    found = bandwidth.probe(engine, "m0")
    assert (found.problem or "").startswith("the bandwidth probe failed: FileNotFoundError: ")


def test_the_largest_cache_is_the_last_level_s(tmp_path: Path) -> None:
    for number, size in enumerate(["48K", "2048K", "300M"]):
        (tmp_path / f"index{number}").mkdir()
        (tmp_path / f"index{number}" / "size").write_text(f"{size}\n", encoding="ascii")
    assert bandwidth.last_level_cache_bytes(tmp_path) == 300 * 2**20


def test_a_machine_that_tells_of_no_cache_has_an_unknown_one(tmp_path: Path) -> None:
    assert bandwidth.last_level_cache_bytes(tmp_path) is None


def test_threads_that_were_not_told_are_unknown() -> None:
    assert bandwidth.engine_threads(an_engine()) is None
    assert bandwidth.engine_threads(an_engine(environment={"OMP_NUM_THREADS": "2"})) == 2
