"""Trains the shipped weights: ``python -m pytest_llmperf.miniature.train OUT``, by step count.

It fixes the networks, their schedules and their losses; the corpus, the tokens and what is done
with finished weights belong elsewhere.

Run it from a checkout with the Python of an engine's environment, which has torch and
transformers (``PYTHONPATH=.`` when the package is not installed there). On two busy cores the
shipped target took 12 minutes, the drafter 12 and the weak one 4, the drafters on one thread each.
Floats differ between machines: a rebuild is judged by what its drafter gets accepted, not by its
digests.
"""

from __future__ import annotations

import argparse
import importlib
import math
import os
import sys
import time
from collections import UserDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

from pytest_llmperf.errors import UsageError
from pytest_llmperf.miniature.corpus import Chat, middle_chat, router_chat, short_chat
from pytest_llmperf.miniature.digests import write_digests
from pytest_llmperf.miniature.lexicon import STOP_IDS, Lexicon

__all__ = ["main"]

HIDDEN, INTERMEDIATE, LAYERS, WINDOW = 192, 384, 4, 512
HEADS, KV_HEADS, HEAD_WIDTH, SOFTCAP = 4, 2, 32, 30.0
DRAFT_HIDDEN, DRAFT_INTERMEDIATE, UNROLL = 128, 256, 3
LONGEST = 3072
PEAK_RATE = 3e-3
_TELL_EVERY_SECONDS = 10.0

Network = Any  # torch is imported late, so its classes have no names here
Tensor = Any
Loss = Callable[[Tensor, Tensor], tuple[Tensor, str]]


@dataclass(frozen=True)
class Phase:
    """A stretch of training: *steps* steps over *rows* rows of *columns* tokens of one *kind*."""

    kind: Callable[[Random], Chat]
    steps: int
    rows: int
    columns: int


TARGET_PHASES = (
    Phase(short_chat, 2100, 8, 256),
    Phase(middle_chat, 200, 2, 1024),
    Phase(router_chat, 260, 1, LONGEST),
)
DRAFTER_PHASES = (Phase(short_chat, 1000, 4, 256), Phase(router_chat, 60, 1, LONGEST))
WEAK_PHASES = (Phase(short_chat, 160, 8, 256),)
DRAFTER_LAYERS = ("sliding_attention", "full_attention")
WEAK_LAYERS = ("full_attention",)


def _needed(package: str) -> ModuleType:
    """Import *package* when training starts, so that the rest of the room stays light."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise UsageError(
            f"Training the miniature needs {package}, which this Python cannot import.",
            f"{sys.executable}: {error}",
            "Run it with the Python of an engine's environment, which has torch and transformers.",
        ) from error


# --- batches -----------------------------------------------------------------------------------


def _rows(lexicon: Lexicon, phase: Phase, r: Random) -> Iterator[tuple[list[int], list[float]]]:
    """Yield rows of at most the phase's columns; each begins with a conversation's first token."""
    while True:
        ids: list[int] = []
        weights: list[float] = []
        while len(ids) < phase.columns:
            more_ids, more_weights = lexicon.learn(phase.kind(r))
            ids += more_ids
            weights += more_weights
            if phase.rows == 1:
                break
        yield ids[: phase.columns], weights[: phase.columns]


def _batches(lexicon: Lexicon, phase: Phase, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield (token ids, weights) of shape (rows, columns)."""
    torch = _needed("torch")
    rows = _rows(lexicon, phase, Random(seed))
    while True:
        drawn = [next(rows) for _ in range(phase.rows)]
        yield torch.tensor([ids for ids, _ in drawn]), torch.tensor([w for _, w in drawn])


def _rate(fraction: float) -> float:
    """Return the learning rate: a short warm-up, then half a cosine down to a tenth."""
    warm = min(1.0, fraction / 0.04)
    return PEAK_RATE * warm * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * fraction)))


def _fit(
    name: str, network: Network, loss_of: Loss, phases: Sequence[Phase], lexicon: Lexicon
) -> None:
    """Run all steps of *phases* with AdamW, telling step, loss, seconds and the time left."""
    torch = _needed("torch")
    optimiser = torch.optim.AdamW(
        network.parameters(), lr=PEAK_RATE, betas=(0.9, 0.98), weight_decay=0.01, fused=True
    )
    step, total = 0, sum(phase.steps for phase in phases)
    for number, phase in enumerate(phases):
        clock = _Clock(phase)
        batches = islice(_batches(lexicon, phase, 1000 + number), phase.steps)
        for done, (ids, weights) in enumerate(batches, start=1):
            step += 1
            loss, note = loss_of(ids, weights)
            _descend(optimiser, loss, _rate(step / total))
            if clock.is_due(done):
                line = f"{name}: step {step} of {total}, loss {loss.item():.3f}, {note}"
                _tell(f"{line}, {clock.reading(done)}")


def _descend(optimiser: Network, loss: Tensor, rate: float) -> None:
    """Take one step along the gradient of *loss*, clipped to length 1."""
    parameters = optimiser.param_groups[0]["params"]
    optimiser.param_groups[0]["lr"] = rate
    optimiser.zero_grad()
    loss.backward()
    _needed("torch").nn.utils.clip_grad_norm_(parameters, 1.0)
    optimiser.step()


class _Clock:
    """Tells when a progress line is due, and how long a phase has taken and will take."""

    def __init__(self, phase: Phase) -> None:
        self._phase = phase
        self._begin = self._told = time.monotonic()

    def is_due(self, done: int) -> bool:
        now = time.monotonic()
        if now - self._told < _TELL_EVERY_SECONDS and done < self._phase.steps:
            return False
        self._told = now
        return True

    def reading(self, done: int) -> str:
        spent = time.monotonic() - self._begin
        left = (self._phase.steps - done) * spent / done
        return f"{self._phase.kind.__name__} for {spent:.0f} s, {left:.0f} s left"


def _tell(line: str) -> None:
    print(line, flush=True)  # noqa: T201  # the progress of a command is its output


# --- the target --------------------------------------------------------------------------------


def _text_config(lexicon: Lexicon, layers: Sequence[str], **changes: object) -> Network:
    settings = {
        "vocab_size": len(lexicon),
        "num_hidden_layers": len(layers),
        "layer_types": list(layers),
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_WIDTH,
        "global_head_dim": HEAD_WIDTH,
        "sliding_window": WINDOW,
        "max_position_embeddings": 8192,
        "hidden_size_per_layer_input": 0,
        "bos_token_id": 2,
        "pad_token_id": 0,
        "eos_token_id": list(STOP_IDS),
    }
    return _needed("transformers").Gemma4TextConfig(**(settings | changes))


def _new_target(lexicon: Lexicon) -> Network:
    config = _text_config(
        lexicon,
        ["sliding_attention"] * (LAYERS - 1) + ["full_attention"],
        hidden_size=HIDDEN,
        intermediate_size=INTERMEDIATE,
        vocab_size_per_layer_input=len(lexicon),
        num_kv_shared_layers=0,
        final_logit_softcapping=SOFTCAP,
    )
    target = _needed("transformers").Gemma4ForCausalLM(config)
    target.config._attn_implementation = "sdpa"  # noqa: SLF001  # its only switch
    return target


def _logits(target: Network, hidden: Tensor) -> Tensor:
    """Return the capped logits of the target at the given final hidden states."""
    return SOFTCAP * _needed("torch").tanh(target.lm_head(hidden) / SOFTCAP)


def _target_loss(target: Network) -> Loss:
    """Return the loss of the answers alone: all other tokens are context."""
    functional = _needed("torch").nn.functional

    def loss(ids: Tensor, weights: Tensor) -> tuple[Tensor, str]:
        hidden = target.model(input_ids=ids, use_cache=False).last_hidden_state[:, :-1]
        wanted, weight = ids[:, 1:], weights[:, 1:]
        learnt = weight > 0
        logits, wanted, weight = _logits(target, hidden[learnt]), wanted[learnt], weight[learnt]
        each = functional.cross_entropy(logits, wanted, reduction="none")
        right = (logits.argmax(-1) == wanted)[weight == 1].float().mean()
        return (each * weight).sum() / weight.sum(), f"right {right:.3f}"

    return loss


def _train_target(lexicon: Lexicon, phases: Sequence[Phase]) -> Network:
    """Train the target, then round it to what is shipped: the drafter shall learn that function."""
    torch = _needed("torch")
    torch.manual_seed(0)
    target = _new_target(lexicon)
    _fit("target", target, _target_loss(target), phases, lexicon)
    target = target.bfloat16().float().eval()
    for parameter in target.parameters():
        parameter.requires_grad_(False)
    return target


# --- the drafters ------------------------------------------------------------------------------


def _new_drafter(lexicon: Lexicon, layers: Sequence[str]) -> Network:
    transformers = _needed("transformers")
    text_config = _text_config(
        lexicon,
        layers,
        hidden_size=DRAFT_HIDDEN,
        intermediate_size=DRAFT_INTERMEDIATE,
        vocab_size_per_layer_input=0,
        num_kv_shared_layers=len(layers),
    )
    config = transformers.Gemma4AssistantConfig(
        text_config=text_config, backbone_hidden_size=HIDDEN, use_ordered_embeddings=False
    )
    drafter = transformers.Gemma4AssistantForCausalLM(config)
    drafter.config._attn_implementation = "sdpa"  # noqa: SLF001  # its only switch
    return drafter


def _masks(length: int) -> dict[str, Tensor]:
    position = _needed("torch").arange(length)
    past = position[None, :] <= position[:, None]
    near = past & (position[None, :] > position[:, None] - WINDOW)
    return {"full_attention": past[None, None], "sliding_attention": near[None, None]}


def _teach(target: Network, ids: Tensor) -> tuple[Tensor, dict[str, Tensor], Tensor]:
    """Return what the target shows a drafter: hidden states, shared keys and values, embeddings."""
    with _needed("torch").no_grad():
        shown = target.model(
            input_ids=ids,
            shared_kv_states=UserDict(),
            return_shared_kv_states=True,
            use_cache=False,
        )
        keys_values = {kind: tuple(pair) for kind, pair in shown.shared_kv_states.items()}
        return shown.last_hidden_state, keys_values, target.model.embed_tokens(ids)


def _drafter_loss(target: Network, drafter: Network) -> Loss:
    """Return the loss of UNROLL drafts in a row against the target's own distributions.

    As in vLLM, the draft *k* at position q reads the embedding of token q + k beside the hidden
    state (the target's at first, then the drafter's own) and says token q + k + 1, with queries
    at position q throughout.
    """
    torch = _needed("torch")
    functional = torch.nn.functional

    def loss(ids: Tensor, weights: Tensor) -> tuple[Tensor, str]:
        length = ids.shape[1]
        seen, keys_values, embedded = _teach(target, ids)
        hidden, positions = seen, torch.arange(length)[None]
        masks, total, agreed = _masks(length), 0.0, []
        for k in range(1, UNROLL + 1):
            ahead = functional.pad(embedded[:, k:], (0, 0, 0, k))
            mixed = drafter.pre_projection(torch.cat([ahead, hidden], -1))
            out = drafter.model(
                inputs_embeds=mixed,
                attention_mask=masks,
                position_ids=positions,
                shared_kv_states=UserDict(keys_values),
                use_cache=False,
            ).last_hidden_state
            hidden = drafter.post_projection(out)
            learnt = weights[:, k + 1 :] > 0
            weight = weights[:, k + 1 :][learnt]
            wanted = _logits(target, seen[:, k : length - 1][learnt])
            said = drafter.lm_head(out[:, : length - 1 - k][learnt])
            each = -(wanted.softmax(-1) * said.log_softmax(-1)).sum(-1)
            total = total + (each * weight).sum() / weight.sum() / UNROLL
            agreed.append(f"{(said.argmax(-1) == wanted.argmax(-1)).float().mean():.3f}")
        return total, f"agreed {' '.join(agreed)}"

    return loss


def _train_drafter(
    name: str, lexicon: Lexicon, target: Network, layers: Sequence[str], phases: Sequence[Phase]
) -> Network:
    _needed("torch").manual_seed(1)
    drafter = _new_drafter(lexicon, layers)
    _fit(name, drafter, _drafter_loss(target, drafter), phases, lexicon)
    return drafter


# --- the command -------------------------------------------------------------------------------


def _scaled(phases: Sequence[Phase], fraction: float) -> list[Phase]:
    return [Phase(p.kind, max(1, round(p.steps * fraction)), p.rows, p.columns) for p in phases]


def _save(network: Network, folder: Path) -> None:
    network.bfloat16().save_pretrained(folder)
    network.float()
    _tell(f"wrote {folder}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Train all three networks into the folder OUT, laid out as the shipped weights are."""
    parser = argparse.ArgumentParser(description="Train the weights of the miniature.")
    parser.add_argument("out", type=Path, help="folder to write into")
    parser.add_argument(
        "--fraction", type=float, default=1.0, help="share of the steps to run, to try it out"
    )
    options = parser.parse_args(arguments)
    _needed("torch").set_num_threads(os.cpu_count() or 1)
    lexicon = Lexicon.from_corpus()
    _tell(f"tokenizer: {len(lexicon)} tokens")
    lexicon.save(options.out / "tokenizer")
    target = _train_target(lexicon, _scaled(TARGET_PHASES, options.fraction))
    _save(target, options.out / "target")
    for name, layers, phases in (
        ("drafter", DRAFTER_LAYERS, DRAFTER_PHASES),
        ("drafter-weak", WEAK_LAYERS, WEAK_PHASES),
    ):
        scaled = _scaled(phases, options.fraction)
        drafter = _train_drafter(name, lexicon, target, layers, scaled)
        _save(drafter, options.out / name)
    _tell(f"digest of all: {write_digests(options.out)}")


if __name__ == "__main__":
    main()
