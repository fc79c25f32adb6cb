"""Makes a checkpoint heavier without changing what it computes: dead layers and dead neurons.

It rewrites a ``config.json`` and a bfloat16 ``model.safetensors`` as bytes, without torch; it
neither trains nor decides how heavy an engine should be.

Dead layers stand in front, so that the layers whose keys and values a drafter reads, the last
sliding and the last full one, stay the trained ones.  A dead layer's post-norm weights are 0, so
it adds exactly nothing.  A dead neuron repeats the input weights of a trained one and has output
weights of 0: the same work, no effect.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_llmperf.errors import UsageError

__all__ = ["add_ballast"]

_LAYERS = "model.layers."
_SILENCED = ("post_attention_layernorm.weight", "post_feedforward_layernorm.weight")
_ONE = b"\x80\x3f"  # bfloat16 1.0, little-endian
_WIDTH = 2  # bytes of a bfloat16


@dataclass(frozen=True)
class _Tensor:
    """A bfloat16 tensor: its shape, and its bytes as (piece, how many times) in order."""

    shape: tuple[int, ...]
    pieces: tuple[tuple[bytes, int], ...]

    @property
    def data(self) -> bytes:
        return b"".join(piece * times for piece, times in self.pieces)

    @property
    def size(self) -> int:
        return sum(len(piece) * times for piece, times in self.pieces)


def add_ballast(source: Path, folder: Path, *, layers: int = 0, mlp: int = 0) -> None:
    """Write a heavier ``config.json`` and ``model.safetensors`` of *source* into *folder*.

    :param layers: dead layers to put in front; each costs a step the dispatch of one layer.
    :param mlp: dead neurons to add to the MLP of every layer, the dead ones included.
    :raises UsageError: when a count is negative or the weights are not bfloat16.
    """
    if layers < 0 or mlp < 0:
        raise UsageError(
            f"Ballast of {layers} layers and {mlp} neurons was asked for.",
            "Ballast can only be added: a count below 0 has no meaning.",
            "Give layers and mlp as numbers from 0.",
        )
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    tensors = _read(source / "model.safetensors")
    tensors = _with_layers(tensors, layers)
    tensors = {name: _with_neurons(name, tensor, mlp) for name, tensor in tensors.items()}
    text = json.dumps(_heavier(config, layers, mlp), indent=2)
    (folder / "config.json").write_text(text + "\n", encoding="utf-8")
    _write(folder / "model.safetensors", tensors)


def _heavier(config: Mapping[str, Any], layers: int, mlp: int) -> dict[str, Any]:
    return dict(config) | {
        "num_hidden_layers": config["num_hidden_layers"] + layers,
        "layer_types": ["sliding_attention"] * layers + config["layer_types"],
        "intermediate_size": config["intermediate_size"] + mlp,
    }


def _with_layers(tensors: Mapping[str, _Tensor], layers: int) -> dict[str, _Tensor]:
    """Move every trained layer back by *layers* and fill the front with silenced first layers."""
    out = {}
    for name, tensor in tensors.items():
        if not name.startswith(_LAYERS):
            out[name] = tensor
            continue
        number, _, rest = name.removeprefix(_LAYERS).partition(".")
        out[f"{_LAYERS}{int(number) + layers}.{rest}"] = tensor
        if number == "0":
            dead = _silenced(rest, tensor)
            out |= {f"{_LAYERS}{front}.{rest}": dead for front in range(layers)}
    return out


def _silenced(rest: str, tensor: _Tensor) -> _Tensor:
    if rest in _SILENCED:
        return _Tensor(tensor.shape, ((b"\0", tensor.size),))
    if rest == "layer_scalar":
        return _Tensor(tensor.shape, ((_ONE, tensor.size // _WIDTH),))
    return tensor


def _with_neurons(name: str, tensor: _Tensor, mlp: int) -> _Tensor:
    """Add *mlp* dead neurons: rows of the gate and up projections, zero columns of the down one."""
    if not mlp or ".mlp." not in name:
        return tensor
    rows, columns = tensor.shape
    if name.endswith("down_proj.weight"):
        zeros, data, width = bytes(mlp * _WIDTH), tensor.data, columns * _WIDTH
        kept = (data[start : start + width] for start in range(0, len(data), width))
        return _Tensor((rows, columns + mlp), tuple((p, 1) for row in kept for p in (row, zeros)))
    again, rest = divmod(mlp, rows)
    data = tensor.data
    return _Tensor((rows + mlp, columns), ((data, 1 + again), (data[: rest * columns * _WIDTH], 1)))


# --- the safetensors format: a length, a JSON header, and the bytes of all tensors ---------------


def _read(path: Path) -> dict[str, _Tensor]:
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header, body = json.loads(raw[8 : 8 + length]), memoryview(raw)[8 + length :]
    header.pop("__metadata__", None)
    strange = sorted({entry["dtype"] for entry in header.values()} - {"BF16"})
    if strange:
        raise UsageError(
            f"The weights in {path} are {', '.join(strange)}, but ballast needs bfloat16.",
            f"Read {len(header)} tensors from its header.",
            "Save them as bfloat16, as python -m pytest_llmperf.miniature.train does.",
        )
    return {
        name: _Tensor(tuple(entry["shape"]), ((bytes(body[slice(*entry["data_offsets"])]), 1),))
        for name, entry in header.items()
    }


def _write(path: Path, tensors: Mapping[str, _Tensor]) -> None:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, tensor in tensors.items():
        begin, end = end, end + tensor.size
        header[name] = {"dtype": "BF16", "shape": tensor.shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for piece in _pieces(tensors.values()):
            file.write(piece)


def _pieces(tensors: Iterable[_Tensor]) -> Iterator[bytes]:
    for tensor in tensors:
        for piece, times in tensor.pieces:
            yield from (piece,) * times if len(piece) > 1 else (piece * times,)
