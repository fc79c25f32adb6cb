"""Cuts the miniature's text into tokens, and says which tokens of a conversation are to be learnt.

It builds one tokenizer from the corpus; it neither writes conversations nor trains a network.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

from pytest_llmperf.miniature.corpus import Chat, router_chat, short_chat
from pytest_llmperf.miniature.transcript import SPECIAL_TOKENS

__all__ = ["STOP_IDS", "VOCABULARY", "Lexicon", "learnt_weights"]

Backend = Any  # a tokenizers.Tokenizer, imported late

VOCABULARY = 2304
"""The most tokens that the tokenizer may hold; the corpus's words are used up a little below."""

_SEED = 1
_ROUTER_CHATS, _SHORT_CHATS = 300, 4000
_TURN, _TURN_END, _RESPONSE, _RESPONSE_END = (
    SPECIAL_TOKENS.index(token)
    for token in ("<|turn>", "<turn|>", "<|tool_response>", "<tool_response|>")
)
_STOPS = ("<eos>", "<turn|>", "<|tool_response>")
STOP_IDS = tuple(SPECIAL_TOKENS.index(token) for token in _STOPS)
"""Token ids at which the served model stops: the end of a turn, or of its tool calls."""


def _chats() -> Iterator[str]:
    r = Random(_SEED)
    yield from (router_chat(r).text() for _ in range(_ROUTER_CHATS))
    yield from (short_chat(r).text() for _ in range(_SHORT_CHATS))


def _plain_parts() -> Iterator[str]:
    """Yield the corpus without its control tokens, which the tokenizer may never merge."""
    control = re.compile("|".join(map(re.escape, SPECIAL_TOKENS)))
    for text in _chats():
        yield from filter(None, control.split(text))


class Lexicon:
    """The tokenizer of the miniature: byte-level pairs, every digit on its own.

    Needs the ``tokenizers`` package, and ``transformers`` to save.
    """

    def __init__(self, tokenizer: Backend) -> None:
        self._tokenizer = tokenizer
        self.model_id: int = tokenizer.token_to_id("model")

    @classmethod
    def from_corpus(cls) -> Lexicon:
        """Learn the tokenizer from the seeded corpus; the same corpus gives the same tokens."""
        tokenizers = importlib.import_module("tokenizers")
        parts = {name: getattr(tokenizers, name) for name in ("models", "trainers", "decoders")}
        pre = tokenizers.pre_tokenizers
        tokenizer = tokenizers.Tokenizer(parts["models"].BPE())
        tokenizer.pre_tokenizer = pre.Sequence([
            pre.Split(tokenizers.Regex(r"\d"), "isolated"),
            pre.ByteLevel(add_prefix_space=False),
        ])  # fmt: skip
        tokenizer.decoder = parts["decoders"].ByteLevel()
        trainer = parts["trainers"].BpeTrainer(
            vocab_size=VOCABULARY,
            min_frequency=2,
            special_tokens=list(SPECIAL_TOKENS),
            initial_alphabet=pre.ByteLevel.alphabet(),
            show_progress=False,
        )
        tokenizer.train_from_iterator(_plain_parts(), trainer)
        return cls(tokenizer)

    def __len__(self) -> int:
        return int(self._tokenizer.get_vocab_size())

    def encode(self, text: str) -> list[int]:
        """Return the token ids of *text*; control tokens written in it are recognised."""
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of *ids*, control tokens included."""
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=False))

    def learn(self, chat: Chat) -> tuple[list[int], list[float]]:
        """Return a conversation's token ids, and beside each how much it counts in training."""
        ids = self.encode(chat.text())
        return ids, learnt_weights(ids, self.model_id, chat.weights)

    def save(self, folder: Path) -> None:
        """Write ``tokenizer.json`` and ``tokenizer_config.json`` into *folder*."""
        transformers = importlib.import_module("transformers")
        tokenizer = transformers.PreTrainedTokenizerFast(
            tokenizer_object=self._tokenizer,
            **{f"{token.strip('<>')}_token": token for token in SPECIAL_TOKENS[:4]},
            additional_special_tokens=list(SPECIAL_TOKENS[4:]),
            model_max_length=8192,
        )
        tokenizer.save_pretrained(folder)


def learnt_weights(ids: Sequence[int], model_id: int, turn_weights: Sequence[float]) -> list[float]:
    """Return for each token of a conversation how much its prediction counts, 0 for most.

    Counted are the tokens that the model itself writes: from the line after ``<|turn>model`` to
    ``<turn|>``, less the tool responses between, but with the control token that opens a
    response, since the model stops by writing it. *turn_weights* holds one weight per model turn.
    """
    weights, turn, start, own = [0.0] * len(ids), -1, len(ids), False
    for position, token in enumerate(ids):
        if token == _TURN and list(ids[position + 1 : position + 2]) == [model_id]:
            turn, start, own = turn + 1, position + 3, True
        if own and position >= start:
            weights[position] = turn_weights[turn]
        if token in (_TURN_END, _RESPONSE):
            own = False
        elif token == _RESPONSE_END:
            own, start = True, position + 1
    return weights
