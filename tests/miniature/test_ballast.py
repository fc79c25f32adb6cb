from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_llmperf.errors import UsageError
from pytest_llmperf.miniature.ballast import add_ballast

ONE = 0x3F80


def heavier(source: Path, **ballast: int) -> tuple[dict[str, Any], dict[str, list[Any]]]:
    """Return the configuration and the tensors, as nested lists of 16-bit words."""
    folder = source.with_name(f"heavy-{'-'.join(f'{k}{v}' for k, v in ballast.items())}")
    folder.mkdir(exist_ok=True)
    add_ballast(source, folder, **ballast)
    config = json.loads((folder / "config.json").read_text())
    return config, read_safetensors(folder / "model.safetensors")


def read_safetensors(path: Path) -> dict[str, list[Any]]:
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    assert length % 8 == 0
    header, body = json.loads(raw[8 : 8 + length]), raw[8 + length :]
    assert header.pop("__metadata__") == {"format": "pt"}
    tensors, expected_begin = {}, 0
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        assert begin == expected_begin
        expected_begin = end
        words = list(struct.unpack(f"<{(end - begin) // 2}H", body[begin:end]))
        columns = entry["shape"][-1] if len(entry["shape"]) > 1 else len(words)
        tensors[name] = [words[i : i + columns] for i in range(0, len(words), columns)]
        assert len(tensors[name]) == (entry["shape"][0] if len(entry["shape"]) > 1 else 1)
    assert expected_begin == len(body)
    return tensors


class TestNoBallast:
    def test_leaves_configuration_and_weights_as_they_were(
        self, toy_target: Path, toy_tensors: Mapping[str, tuple[object, bytes]]
    ) -> None:
        config, tensors = heavier(toy_target)
        assert config == json.loads((toy_target / "config.json").read_text())
        flat = {name: [w for row in rows for w in row] for name, rows in tensors.items()}
        assert flat == {
            name: list(struct.unpack(f"<{len(data) // 2}H", data))
            for name, (_, data) in toy_tensors.items()
        }


class TestDeadLayers:
    def test_stand_in_front_as_sliding_layers(self, toy_target: Path) -> None:
        config, _ = heavier(toy_target, layers=2)
        assert config["num_hidden_layers"] == 4
        assert config["layer_types"] == ["sliding_attention"] * 3 + ["full_attention"]

    def test_leave_the_trained_layers_behind_them_untouched(self, toy_target: Path) -> None:
        _, before = heavier(toy_target)
        _, after = heavier(toy_target, layers=2)
        for layer in (0, 1):
            for name in ("mlp.gate_proj.weight", "post_attention_layernorm.weight"):
                trained = before[f"model.layers.{layer}.{name}"]
                assert after[f"model.layers.{layer + 2}.{name}"] == trained

    def test_add_nothing_to_what_passes_through_them(self, toy_target: Path) -> None:
        _, tensors = heavier(toy_target, layers=2)
        for layer in (0, 1):
            front = f"model.layers.{layer}."
            assert tensors[front + "post_attention_layernorm.weight"] == [[0, 0]]
            assert tensors[front + "post_feedforward_layernorm.weight"] == [[0, 0]]
            assert tensors[front + "layer_scalar"] == [[ONE]]

    def test_leave_the_embedding_alone(self, toy_target: Path) -> None:
        _, before = heavier(toy_target)
        _, after = heavier(toy_target, layers=3)
        assert after["model.embed_tokens.weight"] == before["model.embed_tokens.weight"]


class TestDeadNeurons:
    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
    @given(mlp=st.integers(1, 20))
    def test_read_what_trained_ones_read_and_write_nothing(
        self, toy_target: Path, mlp: int
    ) -> None:
        _, before = heavier(toy_target)
        config, after = heavier(toy_target, mlp=mlp)
        assert config["intermediate_size"] == 3 + mlp
        for layer in (0, 1):
            front = f"model.layers.{layer}.mlp."
            for name in ("gate_proj.weight", "up_proj.weight"):
                trained, rows = before[front + name], after[front + name]
                assert rows == (trained * (1 + mlp))[: 3 + mlp]
            down = "down_proj.weight"
            assert after[front + down] == [row + [0] * mlp for row in before[front + down]]

    def test_are_added_to_dead_layers_too(self, toy_target: Path) -> None:
        _, tensors = heavier(toy_target, layers=1, mlp=5)
        assert all(len(tensors[f"model.layers.{i}.mlp.up_proj.weight"]) == 8 for i in range(3))


class TestBallastRefuses:
    def test_a_count_below_zero(self, toy_target: Path, tmp_path: Path) -> None:
        with pytest.raises(UsageError) as raised:
            add_ballast(toy_target, tmp_path, layers=-1, mlp=4)
        assert str(raised.value) == (
            "Ballast of -1 layers and 4 neurons was asked for.\n"
            "Ballast can only be added: a count below 0 has no meaning.\n"
            "Give layers and mlp as numbers from 0."
        )

    def test_weights_that_are_not_bfloat16(
        self, toy_target: Path, tmp_path: Path, save_tensors: Callable[..., None]
    ) -> None:
        path = toy_target / "model.safetensors"
        save_tensors(path, {"model.norm.weight": ((1,), b"\0\0\0\0")}, dtype="F32")
        with pytest.raises(UsageError) as raised:
            add_ballast(toy_target, tmp_path, layers=1)
        assert str(raised.value) == (
            f"The weights in {path} are F32, but ballast needs bfloat16.\n"
            "Read 1 tensors from its header.\n"
            "Save them as bfloat16, as python -m pytest_llmperf.miniature.train does."
        )
