"""Boots of real vLLM with the profile named by LLMPERF_PROFILE, else the miniature."""

from __future__ import annotations

import os
import re
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

from pytest_llmperf import profile
from pytest_llmperf.errors import EngineDied, EngineError
from pytest_llmperf.server import probe, supervisor
from pytest_llmperf.server.launch import LaunchedEngine, RunningEngine
from pytest_llmperf.spec import EngineSpec

pytestmark = pytest.mark.engine

REPOSITORY = Path(__file__).parent.parent.parent
OWN_CODE = """
def system_prompt():
    return " ".join(f"Rule {n}: a routine of the house begins with a word." for n in range(40))

def tools():
    return []
"""

Boot = Callable[..., AbstractContextManager[LaunchedEngine]]
Hold = Callable[..., Any]
Gone = Callable[..., bool]


def gemma(**options: Any) -> EngineSpec:  # noqa: ANN401 - handed on to the profile
    mine = profile.load(os.environ.get("LLMPERF_PROFILE", "miniature"))
    return mine.engine("gemma", **{"speculation": True, **options})


def counter(running: RunningEngine, name: str) -> float:
    page = probe.ask(running.url, "/metrics", timeout_s=10).body
    values = re.findall(rf"^{re.escape(name)}\{{[^}}]*\}} (\S+)$", page, re.MULTILINE)
    return sum(float(each) for each in values)


def test_real_vllm_boots_answers_speculates_and_leaves_nothing(boot: Boot, gone: Gone) -> None:
    with boot(gemma()) as running:
        facts = running.engine.facts
        assert facts.version is not None
        assert facts.block_size == 32
        assert facts.cache_blocks is not None
        assert facts.cache_blocks * facts.block_size > 8 * 4096
        assert (facts.max_model_len, facts.metrics, facts.tokenize) == (4096, True, True)
        assert facts.token_ids
        assert running.engine.subject["engine_version"] == facts.version
        assert running.engine.subject["engine_files"] is not None
        phases = running.engine.phases_s
        assert {"importing", "loading weights", "cache", "probing"} <= set(phases)
        assert counter(running, "vllm:spec_decode_num_drafts_total") > 0
        running.check()
        members = running._process.members()
        # vLLM writes process titles; our mark must survive them.
        assert supervisor.marked(running._process.nonce) >= members
        assert len(members) >= 2
    assert gone(list(members), within_s=1)
    assert running.exit_code is not None


def test_the_core_of_a_server_that_was_killed_is_ended_with_it(boot: Boot, gone: Gone) -> None:
    with boot(gemma(speculation=False)) as running:
        members = running._process.members()
        assert running.engine.pid is not None
        os.kill(running.engine.pid, signal.SIGKILL)
        assert gone(list(members), within_s=20)
        assert not running.is_alive()
        assert running.exit_code == -signal.SIGKILL
        with pytest.raises(EngineDied, match="was killed by SIGKILL while it was in use"):
            running.check()


@pytest.mark.parametrize("phase", ["importing", "loading weights", "cache", "ready"])
def test_killing_the_holder_at_any_phase_leaves_no_process(
    phase: str, hold: Hold, gone: Gone
) -> None:
    holder = hold(gemma())
    if phase == "ready":
        pids = holder.read_until("ready")["members"]
    else:
        while holder.read_until("phase")["phase"] != phase:
            pass
        time.sleep(0.5)
        pids = [each.pid for each in psutil.Process(holder.process.pid).children(recursive=True)]
    assert pids
    holder.signal(signal.SIGKILL)
    assert gone(pids, within_s=30)


def test_killing_holder_and_supervisor_together_leaves_no_process(hold: Hold, gone: Gone) -> None:
    holder = hold(gemma())
    ready = holder.read_until("ready")
    os.kill(ready["supervisor"], signal.SIGKILL)
    holder.signal(signal.SIGKILL)
    assert gone(ready["members"], within_s=30)


def test_a_flag_that_this_version_does_not_take_is_told(boot: Boot) -> None:
    with pytest.raises(EngineDied) as died, boot(gemma(flags={"--no-such-flag": 1})):
        pass
    assert "exited with code 2" in died.value.what
    assert died.value.next_step.startswith("This version of vLLM does not take a flag")


def test_a_chat_with_tools_is_refused_at_boot_where_no_parser_is_set(boot: Boot) -> None:
    without = {"--enable-auto-tool-choice": False, "--tool-call-parser": False}
    with pytest.raises(EngineError) as refused, boot(gemma(flags=without)):
        pass
    assert refused.value.what.endswith("does not take a chat of the benchmarks' kind: HTTP 400.")
    assert refused.value.next_step.startswith("Set --enable-auto-tool-choice")


def test_the_readme_s_test_beside_your_own_code_is_proven_on_a_server_with_a_drafter(
    boot: Boot, tmp_path: Path
) -> None:
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    (example,) = re.findall(
        r"```python\n(# tests/test_router_latency\.py\n.*?)```", readme, re.DOTALL
    )
    (tmp_path / "test_router_latency.py").write_text(example.replace("p95_s=0.8", "p95_s=30"))
    (tmp_path / "myapp").mkdir()
    (tmp_path / "myapp" / "router.py").write_text(OWN_CODE)
    with boot(gemma()) as running:
        ended = subprocess.run(
            [
                sys.executable,
                "-m",
                "pytest",
                f"--llmperf-attach={running.url}",
                "--llmperf-evidence=here",
            ],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert running.is_alive()
    assert ended.returncode == 0, ended.stdout
    assert "60 of 60 turns cached" in ended.stdout
    assert "acceptance length" in ended.stdout
    assert "1 PASS, 0 REGRESS, 0 INCONCLUSIVE, 0 INVALID" in ended.stdout
