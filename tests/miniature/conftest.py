from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from pytest_llmperf.miniature.digests import write_digests

Tensors = Mapping[str, tuple[tuple[int, ...], bytes]]


def write_safetensors(path: Path, tensors: Tensors, dtype: str = "BF16") -> None:
    header: dict[str, Any] = {}
    end = 0
    for name, (shape, data) in tensors.items():
        begin, end = end, end + len(data)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    body = b"".join(data for _, data in tensors.values())
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


@pytest.fixture(scope="session")
def toy_tensors() -> Tensors:
    """Two layers of hidden size 2 with three neurons; every bfloat16 differs from every other."""
    shapes = {
        "mlp.gate_proj.weight": (3, 2),
        "mlp.up_proj.weight": (3, 2),
        "mlp.down_proj.weight": (2, 3),
        "post_attention_layernorm.weight": (2,),
        "post_feedforward_layernorm.weight": (2,),
        "layer_scalar": (1,),
    }
    names = {f"model.layers.{layer}.{name}": s for layer in (0, 1) for name, s in shapes.items()}
    tensors, value = {}, 1
    for name, shape in {"model.embed_tokens.weight": (4, 2), **names}.items():
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        tensors[name] = (shape, struct.pack(f"<{count}H", *range(value, value + count)))
        value += count
    return tensors


@pytest.fixture(scope="session")
def save_tensors() -> Callable[..., None]:
    """Write a safetensors file: path, tensors and, when not BF16, the dtype."""
    return write_safetensors


TOY_CONFIG = {
    "num_hidden_layers": 2,
    "layer_types": ["sliding_attention", "full_attention"],
    "intermediate_size": 3,
    "hidden_size": 2,
}


@pytest.fixture
def toy_target(tmp_path: Path, toy_tensors: Tensors) -> Path:
    """A folder with a target so small that its bytes can be told apart."""
    folder = tmp_path / "toy"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(TOY_CONFIG))
    write_safetensors(folder / "model.safetensors", toy_tensors)
    return folder


@pytest.fixture
def toy_weights(tmp_path: Path, toy_tensors: Tensors) -> Path:
    """A folder laid out as the shipped weights are."""
    weights = tmp_path / "weights"
    for name in ("target", "drafter", "drafter-weak"):
        (weights / name).mkdir(parents=True)
        (weights / name / "config.json").write_text(json.dumps(TOY_CONFIG | {"made_for": name}))
        write_safetensors(weights / name / "model.safetensors", toy_tensors)
    (weights / "tokenizer").mkdir()
    (weights / "tokenizer" / "tokenizer.json").write_text("{}")
    write_digests(weights)
    return weights


@pytest.fixture
def heard() -> list[str]:
    """What a progress callback was told."""
    return []


@pytest.fixture
def hear(heard: list[str]) -> Callable[[str], None]:
    return heard.append


@pytest.fixture(scope="session")
def engine_python() -> str:
    """The Python of an environment with torch, transformers and vLLM."""
    path = os.environ.get("LLMPERF_ENGINE_PYTHON")
    if not path:
        pytest.skip("LLMPERF_ENGINE_PYTHON names no Python with torch")
    return path
