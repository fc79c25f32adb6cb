from __future__ import annotations

import os
import re
import signal
import socket
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import msgspec
import psutil
import pytest

from pytest_llmperf.errors import EngineDied, EngineError, EngineForeign, EngineLate, UsageError
from pytest_llmperf.record import Declared, Facts
from pytest_llmperf.server import ownership, probe
from pytest_llmperf.server.bootlog import Progress
from pytest_llmperf.server.launch import LaunchedEngine
from pytest_llmperf.spec import EngineSpec

Spec = Callable[..., EngineSpec]
Boot = Callable[..., AbstractContextManager[LaunchedEngine]]


def test_a_healthy_engine_is_ready_with_its_facts_and_ends_with_the_context(
    spec: Spec, boot: Boot, tmp_path: Path
) -> None:
    with boot(spec()) as running:
        engine = running.engine
        assert engine.name == "gemma"
        assert re.fullmatch(r"gemma-[0-9a-f]{8}", running.model)
        assert engine.boot_id == running.model
        assert engine.facts == Facts(
            version="0.0-stub",
            block_size=16,
            cache_blocks=100,
            max_model_len=4096,
            metrics=True,
            tokenize=True,
            token_ids=True,
            speculates=False,
        )
        assert engine.log == str(tmp_path / "engine" / "engine.log")
        assert engine.pid in running._process.members()
        assert running.is_alive()
        assert running.is_healthy()
        assert running.exit_code is None
        assert "Application startup complete" in running.log_tail(5)
        running.check()
    assert not running.is_alive()
    assert running.exit_code == -signal.SIGTERM


def test_a_boot_that_makes_progress_may_outlast_the_deadline_and_is_the_sum_of_its_phases(
    spec: Spec, boot: Boot, told: list[Progress]
) -> None:
    with boot(spec("slow", deadline_s=1.5)) as running:
        engine = running.engine
    assert engine.boot_s is not None
    assert engine.boot_s > 1.5
    assert list(engine.phases_s)[:2] == ["checkpoint", "importing"]
    assert {"configuring", "loading weights", "cache", "probing"} <= set(engine.phases_s)
    assert sum(engine.phases_s.values()) == pytest.approx(engine.boot_s, abs=0.05)
    assert {each.phase for each in told} >= {"importing", "loading weights", "probing"}


def test_health_without_a_generation_is_not_ready(spec: Spec, boot: Boot, tmp_path: Path) -> None:
    with pytest.raises(EngineLate) as late, boot(spec("silent", deadline_s=1.2)):
        pass
    what = r"Engine gemma was not ready after \d\.\d s \(probing\): it lists its model, and a"
    assert re.match(
        what + r" generation of a few tokens did not end within 1\.\d s\.", late.value.what
    )
    log = tmp_path / "engine" / "engine.log"
    assert late.value.evidence == f"Last lines of {log}:\nApplication startup complete."
    assert late.value.next_step.startswith(
        "If it only needs longer, raise [engine] boot_deadline_s (seconds without progress) or"
        f" boot_cap_s (seconds in all) in the profile.\nBy hand: cd {tmp_path / 'engine'} && env "
    )


def test_a_stream_of_comments_is_no_generation(spec: Spec, boot: Boot) -> None:
    with (
        pytest.raises(EngineLate, match="generation of a few tokens did not end"),
        boot(spec("drips", deadline_s=1.2)),
    ):
        pass


def test_quick_garbage_is_not_ready(spec: Spec, boot: Boot) -> None:
    with pytest.raises(EngineError) as bad, boot(spec("garbage")):
        pass
    assert str(bad.value) == (
        "Engine gemma generates nothing sane: its text is one repeated character, '!'.\n"
        f"Its answer to a fixed question: {'!' * 32!r}.\n"
        "Garbage can be quick, so nothing is timed. Check quantisation, kernels (for NVFP4 on GB10"
        " the marlin backends), chat template and model."
    )


def test_a_refused_chat_with_tools_fails_at_once_and_names_the_flags(
    spec: Spec, boot: Boot
) -> None:
    with pytest.raises(EngineError) as refused, boot(spec("no-tools")):
        pass
    assert refused.value.what == (
        "Engine gemma does not take a chat of the benchmarks' kind: HTTP 400."
    )
    assert '"auto\\" tool choice requires --enable-auto-tool-choice' in refused.value.evidence
    assert refused.value.next_step == (
        "Set --enable-auto-tool-choice and --tool-call-parser (gemma4 for Gemma 4) on the server,"
        " or [engine] tools = false in the profile for a model without tools. The request is not"
        " repeated; it would be refused in the benchmark as well."
    )


def test_a_server_that_wants_a_key_is_alive_and_not_ready(spec: Spec, boot: Boot) -> None:
    with pytest.raises(EngineError) as wants, boot(spec("wants-key")) as _:
        pass
    assert wants.value.what == "Engine gemma is up and wants a key (401)."
    assert wants.value.evidence.endswith('/v1/models says: {"error": "Unauthorized"}')
    assert wants.value.next_step == (
        "Take --api-key out of [engine.flags] and VLLM_API_KEY out of the environment."
    )


def test_another_name_on_our_port_is_another_engine(spec: Spec, boot: Boot) -> None:
    with pytest.raises(EngineForeign) as foreign, boot(spec("renamed")):
        pass
    what = r"Another engine answers where gemma should: it does not list gemma-[0-9a-f]{8}\."
    assert re.fullmatch(what, foreign.value.what)
    assert foreign.value.evidence.endswith("/v1/models lists someone-else.")
    assert foreign.value.next_step == (
        "Stop that server, or leave [engine] port out to be given a free one."
    )


def test_a_death_has_its_code_the_end_of_the_log_advice_and_the_command(
    spec: Spec, boot: Boot, tmp_path: Path
) -> None:
    with pytest.raises(EngineDied) as died, boot(spec("dies")):
        pass
    what = r"Engine gemma exited with code 3 after \d\.\d s \(importing\), before it was ready\."
    assert re.fullmatch(what, died.value.what)
    assert died.value.evidence == (
        f"Last lines of {tmp_path / 'engine' / 'engine.log'}:\n"
        "loading\ntorch.OutOfMemoryError: CUDA out of memory."
    )
    advice, _, by_hand = died.value.next_step.partition("\n")
    assert advice == (
        "It ran out of memory: lower --gpu-memory-utilization, --max-model-len or --max-num-seqs,"
        " or stop what else holds the memory."
    )
    assert by_hand.startswith(f"By hand: cd {tmp_path / 'engine'} && env PYTHONPATH=")
    assert " -m stub_engine --behaviour dies --host 127.0.0.1 --port " in by_hand


def test_a_crash_with_speculation_is_never_booted_again_without_it(
    spec: Spec, boot: Boot, told: list[Progress]
) -> None:
    promised = Declared(speculation="mtp", draft_tokens=3)
    with pytest.raises(EngineDied) as died, boot(spec("mismatched", declared=promised)):
        pass
    assert died.value.next_step.startswith(
        "Speculation (mtp) was asked for, so it is not booted again without it: check that drafter"
        " and target are a pair that this version serves.\nBy hand: "
    )
    assert [each.phase for each in told].count("checkpoint") == 1


def test_leaving_with_code_0_before_being_ready_is_a_death(spec: Spec, boot: Boot) -> None:
    with pytest.raises(EngineDied, match="exited with code 0 after"), boot(spec("gives-up")):
        pass


def test_a_death_by_signal_names_the_signal(spec: Spec, boot: Boot) -> None:
    with pytest.raises(EngineDied, match="was killed by SIGKILL after"), boot(spec("killed")):
        pass


def test_a_server_error_in_the_probe_is_explained_by_the_death_that_follows(
    spec: Spec, boot: Boot
) -> None:
    with pytest.raises(EngineDied) as died, boot(spec("dies-when-asked")):
        pass
    assert "exited with code 9" in died.value.what
    assert "kernel exploded" in died.value.evidence


def test_a_boot_without_progress_is_late(spec: Spec, boot: Boot, tmp_path: Path) -> None:
    with pytest.raises(EngineLate) as late, boot(spec("mute", deadline_s=0.7)):
        pass
    what = r"Engine gemma was not ready after \d\.\d s \(importing\): no progress for \d\.\d s;"
    assert re.fullmatch(what + r" nothing listens on its port yet\.", late.value.what)
    assert late.value.evidence == f"{tmp_path / 'engine' / 'engine.log'} is empty."


def test_a_boot_that_only_talks_is_late_at_its_cap(spec: Spec, boot: Boot) -> None:
    with (
        pytest.raises(EngineLate, match=r"its cap of 1 s is reached\."),
        boot(spec("chatters", cap_s=1.0)),
    ):
        pass


def test_a_missing_python_is_told_before_anything_starts(
    spec: Spec, boot: Boot, told: list[Progress]
) -> None:
    nowhere = msgspec.structs.replace(spec(), python="/nowhere/python")
    with pytest.raises(UsageError) as missing, boot(nowhere):
        pass
    assert str(missing.value) == (
        "The Python of engine gemma is not there: /nowhere/python.\n"
        "The profile stub or LLMPERF_ENGINE_PYTHON names it.\n"
        "Nothing was booted. Install the engine's environment, or name its Python."
    )
    assert told == []


def test_a_taken_port_is_told_with_its_holder_before_anything_is_loaded(
    spec: Spec, boot: Boot, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(EngineForeign) as foreign, boot(spec(port=port)):
            pass
    assert foreign.value.what.startswith(f"Port {port} is taken by process {os.getpid()} (")
    assert foreign.value.what.endswith("); nothing was booted.")
    assert foreign.value.evidence == f"Binding 127.0.0.1:{port} failed: Address already in use."
    assert foreign.value.next_step == (
        "Stop that process, choose another [engine] port in the profile, or leave the port out to"
        " be given a free one. To measure that server, attach to it."
    )
    assert not (tmp_path / "engine" / "engine.log").exists()


def test_a_stranger_that_takes_the_port_while_we_load_is_no_engine_of_ours(
    spec: Spec, boot: Boot
) -> None:
    strangers = socket.socket()
    strangers.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    strangers.bind(("127.0.0.1", 0))
    port = strangers.getsockname()[1]
    timer = threading.Timer(0.4, strangers.listen)
    timer.start()
    try:
        with pytest.raises(EngineForeign) as foreign, boot(spec("mute", port=port)):
            pass
    finally:
        timer.join()
        strangers.close()
    assert foreign.value.what == f"Port {port} of engine gemma is held by another process."
    assert f"It is process {os.getpid()} (" in foreign.value.evidence


def test_an_owner_that_the_table_misses_once_is_looked_for_again(
    spec: Spec, boot: Boot, monkeypatch: pytest.MonkeyPatch
) -> None:
    true_look = ownership.listeners
    misses: list[set[int | None]] = [{None}, {2**22 - 1}]
    looks = iter(misses)

    def look(port: int) -> set[int | None]:
        seen = true_look(port)
        return next(looks, seen) if seen else seen

    monkeypatch.setattr(ownership, "listeners", look)
    with boot(spec()) as running:
        assert running.is_alive()
    assert next(looks, None) is None


def test_two_engines_at_once_are_given_two_ports(spec: Spec, boot: Boot, tmp_path: Path) -> None:
    with boot(spec()) as one, boot(spec(name="other")) as two:
        assert one.url != two.url


def test_our_own_python_settings_do_not_reach_the_engine(
    spec: Spec, boot: Boot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONWARNINGS", "error")
    monkeypatch.setenv("PYTHONSTARTUP", "/nowhere")
    with boot(spec()) as running:
        environment = psutil.Process(running.engine.pid).environ()
        assert [name for name in environment if name.startswith("PYTHON")] == ["PYTHONPATH"]
        assert running.engine.environment == {"PYTHONPATH": environment["PYTHONPATH"]}
        assert Path(psutil.Process(running.engine.pid).cwd()).name == "engine"


def test_a_proxy_in_the_environment_is_not_asked(
    spec: Spec, boot: Boot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with boot(spec()) as running:
        assert probe.ask(running.url, "/health", timeout_s=2).status == 200


def test_an_engine_that_died_in_use_says_so_when_checked(
    spec: Spec, boot: Boot, tmp_path: Path
) -> None:
    with boot(spec()) as running:
        assert running.engine.pid is not None
        os.kill(running.engine.pid, signal.SIGKILL)
        running._process._supervisor.wait()
        with pytest.raises(EngineDied) as died:
            running.check()
        assert running.exit_code == -signal.SIGKILL
    assert str(died.value) == (
        "Engine gemma was killed by SIGKILL while it was in use.\n"
        f"Last lines of {tmp_path / 'engine' / 'engine.log'}:\nApplication startup complete.\n"
        "What was measured on it is void."
    )
