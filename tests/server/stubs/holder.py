"""A program that holds one engine, says its process ids, and waits to be killed."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import msgspec

from pytest_llmperf.server.launch import Progress, launch
from pytest_llmperf.spec import EngineSpec


def say(**facts: object) -> None:
    os.write(1, f"{json.dumps(facts)}\n".encode())


def main() -> None:
    spec = msgspec.json.decode(sys.argv[1], type=EngineSpec)
    folder, when = Path(sys.argv[2]), sys.argv[3]

    def progress(told: Progress) -> None:
        say(phase=told.phase)

    with launch(spec, folder=folder, clock=time.monotonic_ns, progress=progress) as running:
        if when == "forked" and os.fork() == 0:
            time.sleep(60)  # holds a copy of the pipe that the supervisor listens on
            os._exit(0)
        members = sorted(running._process.members())
        say(
            ready=True,
            url=running.url,
            members=members,
            supervisor=running._process._supervisor.pid,
        )
        time.sleep(60)


if __name__ == "__main__":
    main()
