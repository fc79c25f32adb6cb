"""A measured boot with a known checkpoint and a known bandwidth, and small checkpoints."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from pytest_llmperf import record
from pytest_llmperf.denominator import DECODE_THROUGHPUT
from pytest_llmperf.evidence import Evidence, Measured
from pytest_llmperf.testing import a_measurement, a_request, a_session, an_engine, some_counters

NETWORK = record.Network(
    source="target",
    parts=(
        record.Part(name="layers", elements=90_000_000, stored="BF16", bytes_each=4.0),
        record.Part(name="tied head", elements=10_000_000, stored="BF16", bytes_each=4.0),
    ),
    kv=(
        record.KvLayers(layers=3, heads=2, width=32, window=64, bytes_each=4.0),
        record.KvLayers(layers=1, heads=2, width=32, bytes_each=4.0),
    ),
)
"""400 MB of weights a step."""

BoundTo = Callable[..., Measured]


@pytest.fixture
def boot() -> BoundTo:
    """Make a boot whose turns decode at about so many tokens a second."""

    def make(
        *,
        tps: float = 20.0,
        bandwidth: float = 20e9,
        weights: dict[str, Any] | None = None,
        probe: dict[str, Any] | None = None,
        name: str = "b0",
        declared: record.Declared | None = None,
        **turn: Any,  # noqa: ANN401 - any field of a request
    ) -> Measured:
        declared = declared or record.Declared(prefix_caching=True)
        arm = record.Arm(
            name="candidate",
            boot_id=name,
            engine="plain",
            denominator=DECODE_THROUGHPUT,
            declared=declared,
        )
        turns = [
            a_request(
                request_id=f"{name}.{number}",
                measurement_id=f"m-{name}",
                arm="candidate",
                boot_id=name,
                block=number // 2,
                position=number,
                tokens=17,
                gap_s=(1 + (number % 3 - 1) / 100) / tps,
                start_ns=(1 + 10 * number) * 1_000_000_000,
                **turn,
            )
            for number in range(8)
        ]
        rates = tuple(bandwidth * (1 + (number % 3 - 1) / 100) for number in range(12))
        known: dict[str, Any] = {
            "measurement_id": f"m-{name}",
            "boot_id": name,
            "device": "cpu",
            "array_bytes": 1_200_000_000,
            "cache_bytes": 32_000_000,
            "engine_threads": 2,
            "series": (
                record.Streamed(kernel="sum", threads=2, bytes_per_s=rates),
                record.Streamed(
                    kernel="sum", threads=1, bytes_per_s=tuple(each / 2 for each in rates)
                ),
            ),
        }
        last_ns = max(each.stamps.closed_ns or 0 for each in turns) + 1_000_000
        done = sum(each.usage.completion_tokens or 0 for each in turns)
        evidence = Evidence(
            [
                a_session(),
                an_engine(boot_id=name, declared=declared),
                record.Weights(boot_id=name, **(weights or {"target": NETWORK})),
                a_measurement(measurement_id=f"m-{name}", arms=(arm,), turns=8, warmup=0),
                some_counters(measurement_id=f"m-{name}", boot_id=name, at_ns=1),
                *turns,
                some_counters(
                    measurement_id=f"m-{name}",
                    boot_id=name,
                    when="after",
                    at_ns=last_ns,
                    requests_finished=8.0,
                    prompt_tokens=800.0,
                    generation_tokens=float(done),
                    prefix_queries=800.0,
                ),
                record.MeasurementEnd(measurement_id=f"m-{name}", completed=True),
                record.Bandwidth(**(known | (probe or {}))),
            ]
        )
        return evidence.measured(f"m-{name}")[0]

    return make


Checkpoint = Callable[..., Path]


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    """Write a checkpoint of headers only: a tensor's name, its dtype and its shape."""

    def write(
        tensors: Mapping[str, tuple[str, list[int]]],
        *,
        folder: str = "target",
        **config: Any,  # noqa: ANN401 - any key of a config.json
    ) -> Path:
        made = tmp_path / folder
        made.mkdir()
        header = {
            name: {"dtype": dtype, "shape": shape, "data_offsets": [0, 0]}
            for name, (dtype, shape) in tensors.items()
        }
        text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
        (made / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text)
        settings = {
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "hidden_size": 64,
            "head_dim": 16,
            "dtype": "bfloat16",
        }
        (made / "config.json").write_text(json.dumps(settings | config), encoding="utf-8")
        return made

    return write
