"""What a step reads of a checkpoint, from the headers of its files and its config."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmperf import record
from pytest_llmperf.claims.ceiling.checkpoint import flags_of, network, weights_of
from pytest_llmperf.claims.ceiling.traffic import kv_bytes, weight_bytes
from pytest_llmperf.miniature.checkpoint import WEIGHTS, materialise
from pytest_llmperf.testing import an_engine

Files = Callable[..., Path]

LAYER = {"model.layers.0.mlp.up_proj.weight": ("BF16", [100, 64])}
EMBEDDING = {"model.embed_tokens.weight": ("BF16", [1000, 64])}


def parts(made: record.Network) -> dict[str, float]:
    return {each.name: each.elements * each.share * each.bytes_each for each in made.parts}


def test_a_tied_embedding_is_the_head_and_read_whole(checkpoint: Files) -> None:
    made = network(checkpoint({**LAYER, **EMBEDDING}, tie_word_embeddings=True), "here", {})
    assert parts(made) == {"layers": 12_800.0, "tied head": 128_000.0}


def test_an_embedding_beside_a_head_is_read_by_the_row(checkpoint: Files) -> None:
    head = {"lm_head.weight": ("BF16", [1000, 64])}
    made = network(
        checkpoint({**LAYER, **EMBEDDING, **head}, tie_word_embeddings=False), "here", {}
    )
    assert parts(made) == {"layers": 12_800.0, "embedding row": 128.0, "head": 128_000.0}


def test_of_per_layer_embeddings_a_row_is_read(checkpoint: Files) -> None:
    each = {"model.embed_tokens_per_layer.weight": ("BF16", [1000, 512])}
    made = network(checkpoint({**LAYER, **each}), "here", {})
    assert parts(made)["per-layer embedding row"] == 1024.0


def test_of_experts_the_active_ones_are_read(checkpoint: Files) -> None:
    experts = {"model.layers.0.experts.gate_up_proj": ("BF16", [128, 32, 64])}
    made = network(checkpoint({**LAYER, **experts}, num_experts=128, top_k_experts=8), "here", {})
    assert parts(made)["experts"] == 128 * 32 * 64 * 2 / 16


def test_experts_of_unknown_number_make_the_bytes_unknown(checkpoint: Files) -> None:
    experts = {"model.layers.0.experts.gate_up_proj": ("BF16", [128, 32, 64])}
    folder = checkpoint(experts)
    found = weights_of(an_engine(command=("python", "--model", str(folder))))
    assert found.problem == "there are experts, and how many of them a token needs is not said"


def test_eyes_and_ears_are_not_read_for_text(checkpoint: Files) -> None:
    tower = {"model.vision_tower.patch.weight": ("BF16", [1000, 64])}
    assert parts(network(checkpoint({**LAYER, **tower}), "here", {})) == {"layers": 12_800.0}


@pytest.mark.parametrize(
    ("flags", "each"),
    [
        ({}, 2.0),
        ({"--dtype": "auto"}, 2.0),
        ({"--dtype": "float32"}, 4.0),
        ({"--dtype": "float16"}, 2.0),
        ({"--quantization": "fp8"}, 1.0),
    ],
)
def test_weights_weigh_what_the_engine_computes_in(
    checkpoint: Files, flags: dict[str, str], each: float
) -> None:
    made = network(checkpoint(LAYER), "here", flags)
    assert made.parts[0].bytes_each == each


def test_weights_that_are_stored_quantised_stay_so(checkpoint: Files) -> None:
    packed = {"model.layers.0.mlp.up_proj.weight": ("U8", [100, 32])}
    made = network(checkpoint(packed), "here", {"--dtype": "float32"})
    assert weight_bytes(made) == 3200.0


@pytest.mark.parametrize(
    ("tensors", "flags", "problem"),
    [
        (LAYER, ("--quantization", "awq"), "how wide weights are under --quantization awq"),
        ({"model.layers.0.w": ("F4", [8, 8])}, (), "the dtype F4 is not known"),
    ],
)
def test_what_cannot_be_counted_is_named(
    checkpoint: Files,
    tensors: dict[str, tuple[str, list[int]]],
    flags: dict[str, str],
    problem: str,
) -> None:
    folder = checkpoint(tensors)
    found = weights_of(an_engine(command=("python", "--model", str(folder), *flags)))
    assert found.target is None
    assert problem in (found.problem or "")


def test_a_file_that_is_no_checkpoint_is_named(checkpoint: Files) -> None:
    folder = checkpoint(LAYER)
    (folder / "model.safetensors").write_bytes(b"not a checkpoint at all")
    found = weights_of(an_engine(command=("python", "--model", str(folder))))
    assert found.problem == "model.safetensors is no safetensors file."


@pytest.mark.parametrize("broken", ["config.json", "model.safetensors"])
def test_a_checkpoint_without_its_files_has_unknown_bytes(checkpoint: Files, broken: str) -> None:
    folder = checkpoint(LAYER)
    (folder / broken).unlink()
    found = weights_of(an_engine(command=("python", "--model", str(folder))))
    assert found.target is None
    assert found.problem is not None


def test_an_attached_server_s_checkpoint_is_unknown() -> None:
    found = weights_of(an_engine(attached=True))
    assert found.problem == "the server is attached, and its checkpoint is not at hand"


def test_a_model_that_was_never_loaded_is_unknown(tmp_path: Path) -> None:
    engine = an_engine(
        command=("python", "--model", "some/model"), environment={"HF_HUB_CACHE": str(tmp_path)}
    )
    assert weights_of(engine).problem == "the files of some/model are not at hand"


def test_a_model_in_the_hub_s_cache_is_found(checkpoint: Files, tmp_path: Path) -> None:
    folder = checkpoint(LAYER)
    model = tmp_path / "models--some--model"
    (model / "refs").mkdir(parents=True)
    (model / "refs" / "main").write_text("abc", encoding="utf-8")
    (model / "snapshots").mkdir()
    folder.rename(model / "snapshots" / "abc")
    engine = an_engine(
        command=("python", "--model", "some/model"), environment={"HF_HUB_CACHE": str(tmp_path)}
    )
    found = weights_of(engine)
    assert found.target is not None
    assert found.target.source == "some/model"


def test_keys_and_values_of_sliding_layers_stop_at_their_window(checkpoint: Files) -> None:
    made = network(
        checkpoint(
            LAYER,
            layer_types=["sliding_attention", "sliding_attention", "full_attention"],
            sliding_window=512,
        ),
        "here",
        {"--dtype": "float32"},
    )
    a_layer = 2 * 16 * 2 * 4
    assert kv_bytes(made, 100) == 3 * 100 * a_layer
    assert kv_bytes(made, 2000) == (2 * 512 + 2000) * a_layer


def test_full_layers_may_have_heads_of_their_own(checkpoint: Files) -> None:
    made = network(
        checkpoint(
            LAYER,
            layer_types=["sliding_attention", "full_attention"],
            sliding_window=512,
            global_head_dim=32,
            num_global_key_value_heads=1,
        ),
        "here",
        {},
    )
    assert {(each.window, each.heads, each.width) for each in made.kv} == {
        (512, 2, 16),
        (None, 1, 32),
    }


def test_a_quantised_cache_halves_keys_and_values(checkpoint: Files) -> None:
    made = network(checkpoint(LAYER), "here", {"--kv-cache-dtype": "fp8"})
    assert [each.bytes_each for each in made.kv] == [1.0]


@given(context=st.floats(1, 1e5), more=st.floats(0, 1e5), window=st.integers(1, 4096))
def test_a_longer_context_never_reads_less_and_a_window_bounds_it(
    context: float, more: float, window: int
) -> None:
    layer = record.KvLayers(layers=3, heads=2, width=32, window=window, bytes_each=4.0)
    made = record.Network(source="s", parts=(), kv=(layer,))
    assert kv_bytes(made, context) <= kv_bytes(made, context + more)
    assert kv_bytes(made, context + more) <= 3 * 2 * 32 * 2 * window * 4.0


@given(
    st.lists(
        st.tuples(st.integers(0, 10**12), st.sampled_from([1.0, 2.0, 4.0]), st.floats(0.01, 1)),
        max_size=6,
    )
)
def test_bytes_of_a_step_are_the_sum_over_parts(parts: list[tuple[int, float, float]]) -> None:
    made = record.Network(
        source="s",
        parts=tuple(
            record.Part(name="layers", elements=n, stored="BF16", bytes_each=each, share=share)
            for n, each, share in parts
        ),
        kv=(),
    )
    assert math.isclose(weight_bytes(made), sum(n * each * share for n, each, share in parts))


@pytest.mark.parametrize(
    ("command", "flags"),
    [
        (
            ("--model", "m", "--enforce-eager", "--dtype", "float32"),
            {"--model": "m", "--enforce-eager": "", "--dtype": "float32"},
        ),
        (("--model=m", "--dtype=half"), {"--model": "m", "--dtype": "half"}),
        (("--enforce-eager",), {"--enforce-eager": ""}),
        ((), {}),
    ],
)
def test_flags_are_read_off_a_command(command: tuple[str, ...], flags: dict[str, str]) -> None:
    assert flags_of(command) == flags


def test_the_miniature_s_bytes_are_those_of_its_file(tmp_path: Path) -> None:
    made = materialise(layers=2, mlp=96, cache_dir=tmp_path, progress=lambda _: None)
    stored = network(made.target, "miniature", {})
    length = int.from_bytes((made.target / "model.safetensors").read_bytes()[:8], "little")
    size = (made.target / "model.safetensors").stat().st_size - 8 - length
    assert weight_bytes(stored) == size  # its head is tied, so that a step reads every weight
    assert weight_bytes(network(made.target, "m", {"--dtype": "float32"})) == 2 * size


def test_an_engine_s_drafter_is_found_by_its_configuration() -> None:
    target, drafter = WEIGHTS / "target", WEIGHTS / "drafter"
    config = json.dumps({"method": "mtp", "model": str(drafter), "num_speculative_tokens": 3})
    engine = an_engine(command=("python", "--model", str(target), "--speculative-config", config))
    found = weights_of(engine)
    assert found.problem is None
    assert found.drafter is not None
    assert found.drafter.source == str(drafter)
