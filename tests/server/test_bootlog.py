from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_llmperf.server.bootlog import BootLog, Progress, Stopwatch, phase_of

LOG = """\
(APIServer pid=1) INFO [api_utils.py:286] non-default args: {'enforce_eager': True}
(APIServer pid=1) INFO [model.py:733] Resolved architecture: Gemma4ForCausalLM
(APIServer pid=1) WARNING [vllm.py:1703] Enforce eager set, disabling torch.compile, CUDAGraphs
(APIServer pid=1) INFO [compilation.py:317] Enabled custom fusions: norm_quant
(EngineCore pid=2) INFO [core.py:133] Initializing a V1 LLM engine (v0.32.0) with config
(EngineCore pid=2) INFO [cpu_model_runner.py:68] Starting to load model m...
Loading safetensors checkpoint shards:   0% Completed | 0/1\rLoading safetensors checkpoint shards
(EngineCore pid=2) INFO [compilation.py:317] Enabled custom fusions: norm_quant
(EngineCore pid=2) INFO [kv_cache_utils.py:2327] CPU KV cache size: 161,029 tokens
(APIServer pid=1) INFO [entry.py:140] Starting vLLM server on http://127.0.0.1:8123
"""
IN_ORDER = ["configuring", "starting the engine core", "loading weights", "cache", "listening"]


def test_phases_are_those_of_the_log_and_a_drafter_is_no_step_back(tmp_path: Path) -> None:
    path = tmp_path / "engine.log"
    path.write_text(LOG)
    assert list(dict.fromkeys(BootLog(path).new_phases())) == IN_ORDER
    assert BootLog(path).new_phases()[-2:] == ["cache", "listening"]


@pytest.mark.parametrize(
    ("line", "phase"),
    [
        ("Dynamo bytecode transform time: 6.2 s", "compiling and warming up"),
        ("Capturing CUDA graphs (mixed prefill-decode): 10%", "compiling and warming up"),
        ("init engine (profile, create kv cache, warmup model) took 1.00 s", "cache"),
        ("Loading safetensors checkpoint shards: 5%", "loading weights"),
        ("anything else", None),
        ("", None),
    ],
)
def test_one_line_tells_its_phase_or_none(line: str, phase: str) -> None:
    assert phase_of(line) == phase


@settings(max_examples=30)
@given(st.lists(st.integers(0, len(LOG)), max_size=6))
def test_the_phases_are_the_same_however_the_log_arrives(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int]
) -> None:
    path = tmp_path_factory.mktemp("log") / "engine.log"
    log = BootLog(path)
    path.write_bytes(b"")
    phases, data = [], LOG.encode()
    for start, end in zip([0, *sorted(cuts)], [*sorted(cuts), len(data)], strict=True):
        with path.open("ab") as file:
            file.write(data[start:end])
        phases += log.new_phases()
    assert list(dict.fromkeys(phases)) == IN_ORDER
    assert log.read_bytes == len(data)


def test_a_log_that_is_not_there_yet_is_empty(tmp_path: Path) -> None:
    log = BootLog(tmp_path / "none")
    assert log.new_phases() == []
    assert log.tail(5) == ""


def test_the_tail_has_the_last_lines_without_empty_ones(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"one\n\n\ntwo\rthree \xff\n")
    assert BootLog(path).tail(2) == "two\nthree \ufffd"


def test_each_phase_is_told_at_its_change_and_now_and_then() -> None:
    now = [0]
    told: list[Progress] = []
    watch = Stopwatch("gemma", clock=lambda: now[0], progress=told.append, every_s=2.0)
    now[0] = int(1e9)
    watch.tick("too soon")
    now[0] = int(2e9)
    watch.tick("a line")
    assert watch.enter("loading weights")
    assert not watch.enter("loading weights")
    now[0] = int(5e9)
    watch.close()
    assert watch.phases_s == {"checkpoint": 2.0, "loading weights": 3.0}
    assert [(each.phase, each.line) for each in told] == [
        ("checkpoint", ""),
        ("checkpoint", "a line"),
        ("loading weights", ""),
    ]
    assert str(told[1]) == "booting gemma, checkpoint: 2 s, 2 s in all"
