"""Each fault of perf_suites/faults, planted for real on vLLM: the right exit code and cause.

`LLMPERF_FAULT=NAME` selects one of them, `LLMPERF_FAULT=today` another one each day.
"""

from __future__ import annotations

import array
import contextlib
import functools
import http.server
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from pytest_llmperf.evidence import NAME
from pytest_llmperf.miniature.checkpoint import materialise
from pytest_llmperf.miniature.transcript import CHAT_TEMPLATE

REPOSITORY = Path(__file__).parent.parent.parent
FAULTS = REPOSITORY / "perf_suites" / "faults"
REGRESSIONS = REPOSITORY / "perf_suites" / "regressions"
LONGEST_RUN_S = 15 * 60
LONGEST_GOODBYE_S = 30
TURNS_BEFORE_ACTING = 4
BUSY_S = 10.0


@dataclass(frozen=True)
class Plant:
    """How one fault is brought about: before pytest starts, and while it measures."""

    profile: Path
    during: Callable[[subprocess.Popen[bytes], Path], None] | None = None
    around: AbstractContextManager[object] = field(default_factory=contextlib.nullcontext)


@dataclass(frozen=True)
class Ended:
    """How a run of pytest ended, and all that it said."""

    exit_code: int
    text: str


def rows() -> dict[str, dict[str, Any]]:
    """The faults to plant: all, or those that LLMPERF_FAULT selects."""
    known = tomllib.loads((FAULTS / "expected.toml").read_text(encoding="utf-8"))
    chosen = os.environ.get("LLMPERF_FAULT")
    if not chosen:
        return known
    if chosen == "today":
        chosen = list(known)[datetime.now(UTC).date().toordinal() % len(known)]
    if chosen not in known:
        raise LookupError(f"LLMPERF_FAULT={chosen!r} is no fault; they are {', '.join(known)}")
    return {chosen: known[chosen]}


ROWS = rows()


@pytest.fixture(autouse=True)
def _heard_interrupts() -> Iterator[None]:
    """A job in the background ignores SIGINT and hands that on; what we start must hear it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.engine
@pytest.mark.parametrize("name", ROWS)
def test_a_planted_fault_is_named_and_leaves_nothing_running(name: str, tmp_path: Path) -> None:
    row = ROWS[name]
    plant = PLANTS[row["plant"]](name, tmp_path)
    ended = run(row["select"], plant, tmp_path)
    assert (ended.exit_code, bool(re.search(row["cause"], ended.text))) == (
        row["exit_code"],
        True,
    ), ended.text
    assert left_running(tmp_path) == []


def run(select: list[str], plant: Plant, folder: Path) -> Ended:
    """Run pytest on the suites under a planted fault, as a user would; it may not hang."""
    evidence, said = folder / "evidence", folder / "said.txt"
    command = [
        str(Path(sys.executable).with_name("pytest")),
        *select,
        f"--llmperf-profile={plant.profile}",
        f"--llmperf-evidence={evidence}",
        "-p",
        "no:cacheprovider",
    ]
    with said.open("wb") as output, plant.around:
        process = subprocess.Popen(
            command,
            cwd=REPOSITORY,
            env={name: value for name, value in os.environ.items() if name != "LLMPERF_LOCK"},
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
        )
        try:
            if plant.during is not None:
                plant.during(process, evidence / NAME)
            code = process.wait(LONGEST_RUN_S)
        finally:
            process.kill()
    return Ended(code, " ".join(said.read_text(encoding="utf-8").split()))


def left_running(folder: Path) -> list[str]:
    """Processes of the run's engines that outlived it, once they have had time to go."""
    deadline = time.monotonic() + LONGEST_GOODBYE_S
    while (left := engines_in(folder)) and time.monotonic() < deadline:
        time.sleep(0.5)
    return left


def engines_in(folder: Path) -> list[str]:
    """Living processes that work below a folder, as every engine of a run does."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            is_below = Path(process.cwd()).is_relative_to(folder)
            if is_below and process.status() != psutil.STATUS_ZOMBIE:
                found.append(f"{process.pid} {' '.join(process.cmdline())}")
    return found


def of_profile(name: str, _: Path) -> Plant:
    return Plant(FAULTS / f"{name}.toml")


def of_regression(name: str, _: Path) -> Plant:
    return Plant(REGRESSIONS / f"{name}.toml")


def dated_prompt(name: str, folder: Path) -> Plant:
    template = folder / "dated.jinja"
    head = "{{- bos_token -}}"
    text = CHAT_TEMPLATE.read_text(encoding="utf-8")
    assert text.count(head) == 1
    dated = f"{head}{{{{- strftime_now('It is %H:%M:%S.%f. ') -}}}}"
    template.write_text(text.replace(head, dated), encoding="utf-8")
    return Plant(written_profile(name, folder, f'"--chat-template" = "{template}"'))


def never_accepted(name: str, folder: Path) -> Plant:
    drafter = folder / "drafter"
    shutil.copytree(materialise(progress=lambda _: None).drafter, drafter)
    shuffle(drafter / "model.safetensors")
    config = f'{{ method = "mtp", model = "{drafter}", num_speculative_tokens = 3 }}'
    return Plant(written_profile(name, folder, f'"--speculative-config" = {config}'))


def port_taken(name: str, folder: Path) -> Plant:
    other = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
    profile = folder / f"{name}.toml"
    lines = ('extends = "miniature"', "[engine]", f"port = {other.server_port}")
    profile.write_text("\n".join(lines), encoding="utf-8")
    return Plant(profile, around=serving(other))


def server_killed(name: str, folder: Path) -> Plant:
    return Plant(written_profile(name, folder), during=kill_the_engine)


def standby_killed_too(name: str, folder: Path) -> Plant:
    return Plant(written_profile(name, folder), during=kill_the_standby)


def foreign_traffic(name: str, folder: Path) -> Plant:
    return Plant(written_profile(name, folder), during=send_a_request)


def busy_neighbour(name: str, folder: Path) -> Plant:
    return Plant(written_profile(name, folder), during=keep_cores_busy)


def interrupted(name: str, folder: Path) -> Plant:
    return Plant(
        written_profile(name, folder), during=functools.partial(send_signal, signal.SIGINT)
    )


def pytest_killed(name: str, folder: Path) -> Plant:
    return Plant(
        written_profile(name, folder), during=functools.partial(send_signal, signal.SIGKILL)
    )


PLANTS: dict[str, Callable[[str, Path], Plant]] = {
    "profile": of_profile,
    "regression": of_regression,
    "dated_prompt": dated_prompt,
    "never_accepted": never_accepted,
    "port_taken": port_taken,
    "server_killed": server_killed,
    "standby_killed_too": standby_killed_too,
    "foreign_traffic": foreign_traffic,
    "busy_neighbour": busy_neighbour,
    "interrupted": interrupted,
    "pytest_killed": pytest_killed,
}


def written_profile(name: str, folder: Path, *flags: str) -> Path:
    profile = folder / f"{name}.toml"
    lines = ('extends = "miniature"', "[engine.flags]", *flags)
    profile.write_text("\n".join(lines), encoding="utf-8")
    return profile


def shuffle(weights: Path) -> None:
    """Permute the values of every tensor of a safetensors file of 16-bit floats, in place."""
    raw = bytearray(weights.read_bytes())
    start = 8 + int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:start])
    for name, tensor in header.items():
        if name == "__metadata__":
            continue
        assert tensor["dtype"] in {"BF16", "F16"}
        first, last = (start + offset for offset in tensor["data_offsets"])
        values = array.array("H", bytes(raw[first:last]))
        random.Random(name).shuffle(values)
        raw[first:last] = values.tobytes()
    weights.write_bytes(raw)


@contextlib.contextmanager
def serving(server: http.server.ThreadingHTTPServer) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def recorded(file: Path) -> list[dict[str, Any]]:
    """The records so far; the last line may still be in the making."""
    if not file.exists():
        return []
    whole = file.read_text(encoding="utf-8").rpartition("\n")[0]
    return [json.loads(line) for line in whole.splitlines()]


def engine_once_measured(process: subprocess.Popen[bytes], file: Path) -> dict[str, Any] | None:
    """The engine's record once a few turns were measured; ``None`` if pytest ended before."""
    while process.poll() is None:
        records = recorded(file)
        turns = [each for each in records if each.get("role") == "turn"]
        if len(turns) >= TURNS_BEFORE_ACTING:
            return next(each for each in records if each["record"] == "engine")
        time.sleep(0.2)
    return None


def kill_the_engine(process: subprocess.Popen[bytes], file: Path) -> None:
    engine = engine_once_measured(process, file)
    if engine is not None:
        os.kill(engine["pid"], signal.SIGKILL)


def kill_the_standby(process: subprocess.Popen[bytes], file: Path) -> None:
    while process.poll() is None:
        records = recorded(file)
        if any(each["record"] == "fault" for each in records):
            engines = [each for each in records if each["record"] == "engine"]
            (standby,) = (each for each in engines if each["name"] == "gemma_standby")
            os.kill(standby["pid"], signal.SIGKILL)
            return
        time.sleep(0.2)


def send_a_request(process: subprocess.Popen[bytes], file: Path) -> None:
    engine = engine_once_measured(process, file)
    if engine is not None:
        body = {"model": engine["served_model"], "prompt": "Who is there?", "max_tokens": 8}
        answer = httpx.post(f"{engine['url']}/v1/completions", json=body, timeout=60)
        answer.raise_for_status()


def keep_cores_busy(process: subprocess.Popen[bytes], file: Path) -> None:
    """Again and again, for what is measured twice; an engine beside it may stand still."""
    if engine_once_measured(process, file) is None:
        return
    loop = [sys.executable, "-c", "while True: pass"]
    while process.poll() is None:
        neighbours = [subprocess.Popen(loop) for _ in range(os.cpu_count() or 1)]
        try:
            time.sleep(BUSY_S)
        finally:
            for each in neighbours:
                each.kill()
                each.wait()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(BUSY_S)


def send_signal(number: signal.Signals, process: subprocess.Popen[bytes], file: Path) -> None:
    if engine_once_measured(process, file) is not None:
        process.send_signal(number)
