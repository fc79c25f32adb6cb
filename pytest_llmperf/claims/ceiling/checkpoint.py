"""What an engine reads of its checkpoints for each step, by the headers of their files.

Only headers and ``config.json`` are read, never weights. The arithmetic is in ``traffic``.
"""

from __future__ import annotations

import json
import math
import struct
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_llmperf import record
from pytest_llmperf.errors import EvidenceError
from pytest_llmperf.server.build import checkpoint_folder

_BITS = {
    **dict.fromkeys(("F64", "I64", "U64"), 64),
    **dict.fromkeys(("F32", "I32", "U32"), 32),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 16),
    **dict.fromkeys(("F8_E4M3", "F8_E5M2", "F8_E8M0", "I8", "U8", "BOOL"), 8),
}
"""Bits of an element by safetensors' name of its dtype."""

_FLOATS = {"F16", "BF16", "F32", "F64"}
"""What ``--dtype`` converts; quantised weights stay as they are stored."""

_COMPUTED = {"float32": 4.0, "float": 4.0, "bfloat16": 2.0, "float16": 2.0, "half": 2.0}
_QUANTISED = {"fp8": 1.0}
"""Bytes of a linear layer's element under ``--quantization``, applied while loading."""

_NOT_TEXT = ("vision_", "audio_", "embed_vision", "embed_audio", "multi_modal", "visual.")
_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")
_ACTIVE = ("top_k_experts", "num_experts_per_tok")
_LONGEST_HEADER = 100 * 2**20


def weights_of(engine: record.Engine) -> record.Weights:
    """The target and the drafter that an engine's command names.

    Nothing is raised: why the bytes are not known stands in ``problem``.
    """
    if engine.attached or not engine.command:
        problem = "the server is attached, and its checkpoint is not at hand"
        return record.Weights(boot_id=engine.boot_id, problem=problem)
    flags = flags_of(engine.command)
    try:
        target = _network(flags.get("--model", ""), flags.get("--revision"), flags, engine)
        drafter = _drafter(flags, engine)
    except (EvidenceError, OSError, ValueError, KeyError, struct.error) as error:
        why = error.what if isinstance(error, EvidenceError) else f"{type(error).__name__}: {error}"
        return record.Weights(boot_id=engine.boot_id, problem=why)
    return record.Weights(boot_id=engine.boot_id, target=target, drafter=drafter)


def flags_of(command: Sequence[str]) -> dict[str, str]:
    """Flags of a command with their values, ``--flag value`` and ``--flag=value`` alike."""
    found: dict[str, str] = {}
    for index, word in enumerate(command):
        name, equals, value = word.partition("=")
        if not name.startswith("--"):
            continue
        after = command[index + 1] if index + 1 < len(command) else ""
        found[name] = value if equals else ("" if after.startswith("--") else after)
    return found


def network(folder: Path, source: str, flags: Mapping[str, str]) -> record.Network:
    """One checkpoint by its files.

    :raises EvidenceError: its bytes per step cannot be told.
    :raises OSError, ValueError, KeyError: its files are missing or damaged.
    """
    whole = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config = {**whole, **whole.get("text_config", {})}
    tensors = dict(_tensors(folder))
    parts: Counter[tuple[str, str]] = Counter()
    tied = config.get("tie_word_embeddings", True) and not _has(tensors, "lm_head.")
    for name, (stored, shape) in tensors.items():
        if not any(mark in name for mark in _NOT_TEXT):
            part = _part(name, tied=tied)
            rows = shape[1:] if part.endswith(" row") else shape
            parts[part, stored] += math.prod(rows)
    return record.Network(
        source=source,
        parts=tuple(_measured(part, n, config, flags) for part, n in parts.items()),
        kv=tuple(_kv(config, flags)),
    )


def header(path: Path) -> dict[str, Any]:
    """The header of a safetensors file: by name each tensor's dtype, shape and place.

    Format: eight bytes of little-endian length, then that much JSON.

    :raises EvidenceError: it is no such file.
    """
    with path.open("rb") as file:
        start = file.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0  # noqa: PLR2004 - as said
        text = file.read(length) if 0 < length <= _LONGEST_HEADER else b""
    try:
        found: dict[str, Any] = json.loads(text)
    except ValueError:
        raise EvidenceError(
            f"{path.name} is no safetensors file.",
            f"Its first eight bytes say that the header is {length} bytes long.",
            "Load the checkpoint again.",
        ) from None
    found.pop("__metadata__", None)
    return found


def _network(
    source: str, revision: str | None, flags: Mapping[str, str], engine: record.Engine
) -> record.Network:
    folder = checkpoint_folder(source, revision, engine.environment)
    if folder is None:
        raise EvidenceError(
            f"the files of {source or 'the model'} are not at hand",
            "Neither a folder nor a snapshot in the hub's cache.",
            "Load it once.",
        )
    return network(folder, source, flags)


def _drafter(flags: Mapping[str, str], engine: record.Engine) -> record.Network | None:
    stated = flags.get("--speculative-config")
    if not stated:
        return None
    config = json.loads(stated)
    source = config.get("model")
    if source is None:  # a head inside the target's own files, or n-grams
        return None
    without = {name: value for name, value in flags.items() if name != "--quantization"}
    return _network(source, config.get("revision"), without, engine)


def _tensors(folder: Path) -> Iterator[tuple[str, tuple[str, list[int]]]]:
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise EvidenceError(
            f"{folder.name} holds no safetensors file",
            "Bytes per step are counted from their headers.",
            "Use a checkpoint in that format.",
        )
    for path in files:
        for name, entry in header(path).items():
            yield name, (entry["dtype"], entry["shape"])


def _has(tensors: Mapping[str, object], mark: str) -> bool:
    return any(mark in name for name in tensors)


def _part(name: str, *, tied: bool) -> str:
    """Which part of a step's reading a tensor is; of an embedding only a row is read."""
    if "embed_tokens_per_layer" in name:
        return "per-layer embedding row"
    if "embed_tokens" in name or "word_embeddings" in name:
        return "tied head" if tied else "embedding row"
    if "lm_head." in name:
        return "head"
    return "experts" if ".experts." in name else "layers"


def _measured(
    part: tuple[str, str], elements: int, config: Mapping[str, Any], flags: Mapping[str, str]
) -> record.Part:
    name, stored = part
    return record.Part(
        name=name,
        elements=elements,
        stored=stored,
        bytes_each=_bytes_each(name, stored, config, flags),
        share=_active(config) if name == "experts" else 1.0,
    )


def _bytes_each(
    name: str, stored: str, config: Mapping[str, Any], flags: Mapping[str, str]
) -> float:
    if stored not in _BITS:
        raise EvidenceError(
            f"the dtype {stored} is not known",
            f"Known are {', '.join(_BITS)}.",
            "Add it, with its width.",
        )
    if stored not in _FLOATS:
        return _BITS[stored] / 8
    quantised = flags.get("--quantization") or flags.get("-q")
    if quantised and not config.get("quantization_config") and name in {"layers", "experts"}:
        if quantised not in _QUANTISED:
            raise EvidenceError(
                f"how wide weights are under --quantization {quantised} is not known",
                f"Known are {', '.join(_QUANTISED)}.",
                "Measure a checkpoint that is stored as it is computed.",
            )
        return _QUANTISED[quantised]
    return _computed(config, flags) or _BITS[stored] / 8


def _computed(config: Mapping[str, Any], flags: Mapping[str, str]) -> float | None:
    """Bytes of a float as the engine computes with it; ``auto`` is the checkpoint's own."""
    stated = flags.get("--dtype", "auto")
    own = config.get("dtype") or config.get("torch_dtype")
    return _COMPUTED.get(str(own) if stated == "auto" else stated)


def _active(config: Mapping[str, Any]) -> float:
    """The share of experts that one token needs."""
    experts = next((config[name] for name in _EXPERTS if config.get(name)), None)
    active = next((config[name] for name in _ACTIVE if config.get(name)), None)
    if not experts or not active:
        raise EvidenceError(
            "there are experts, and how many of them a token needs is not said",
            f"config.json has none of {', '.join(_ACTIVE)}.",
            "Complete the checkpoint's config.json.",
        )
    return float(active / experts)


def _kv(config: Mapping[str, Any], flags: Mapping[str, str]) -> Iterator[record.KvLayers]:
    """Kinds of attention layers with what each token before costs them: its key and its value."""
    kinds = config.get("layer_types") or ["full_attention"] * config["num_hidden_layers"]
    heads = config.get("num_key_value_heads") or config["num_attention_heads"]
    width = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    each = 1.0 if flags.get("--kv-cache-dtype", "").startswith("fp8") else None
    for kind, layers in Counter(kinds).items():
        full = kind == "full_attention"
        if not full and kind != "sliding_attention":
            continue  # linear layers keep a state, whose bytes do not grow with the context
        yield record.KvLayers(
            layers=layers,
            heads=(config.get("num_global_key_value_heads") if full else None) or heads,
            width=(config.get("global_head_dim") if full else None) or width,
            window=None if full else config.get("sliding_window"),
            bytes_each=each or _computed(config, flags) or 2.0,
        )
