"""An imagined engine: whitespace tokens, a prefix cache in blocks, a drafter, counters, and faults.

It has an engine's manners and nobody's speed. Speaking HTTP for it is in ``server``, its metrics
page in ``metrics_page``.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from pytest_llmperf.testing import scripts

_WORDS = 41
"""How many different words it ever says; a prime, so that an answer runs through all of them."""


class Behaviour(msgspec.Struct, frozen=True, kw_only=True):
    """What the engine is like. The default caches prefixes and does not speculate."""

    block_size: int = 16
    """Tokens a block of the prefix cache."""
    cache_blocks: int = 4096
    max_model_len: int = 16_384
    draft_tokens: int = 0
    """Tokens proposed a step; 0 without a drafter. With one, a block less is found in the cache."""
    acceptance: float = 0.8
    """Share of the proposed tokens that is accepted."""
    head_s: float = 0.001
    """Before the first token, however short the prompt."""
    prefill_token_s: float = 20e-6
    """For each prompt token that is not cached."""
    step_s: float = 0.002
    """For each decoding step."""
    answer_tokens: int | None = None
    """Tokens after which it stops by itself; ``None``: at ``max_tokens``."""
    delay: Callable[[int], float] | None = None
    """Further seconds before the first token of the nth generation, from 0."""
    gather: int = 0
    """Answer nobody until so many generations are under way at once."""
    before_gathering: int = 0
    """Generations that are answered before, such as a probe's."""
    version: str = "0.32.0"


class Faults(msgspec.Struct, kw_only=True):
    """What is broken; may be changed while the server runs."""

    cache_off: bool = False
    no_cached_in_usage: bool = False
    drafter_silent: bool = False
    """Speculation is declared and counters exist, but nothing is ever drafted."""
    zero_acceptance: bool = False
    refuse_tools: bool = False
    """Refuse with 400 a chat that offers tools, as an engine without a tool parser does."""
    die_after: int | None = None
    """Answer this many generations; break every connection at the next."""
    admit: int | None = None
    """Refuse with 503 whatever comes while so many generations are under way."""
    hang: bool = False
    """Generations are accepted and never answered."""
    garbage: bool = False
    """The text is one character, for ever."""
    no_metrics: bool = False
    no_tokenize: bool = False
    no_token_ids: bool = False


class Counts(msgspec.Struct, kw_only=True):
    """What the metrics page counts."""

    prefix_queries: int = 0
    prefix_hits: int = 0
    prompt_tokens: int = 0
    generation_tokens: int = 0
    finished: dict[str, int] = {}
    running: int = 0
    waiting: int = 0
    preemptions: int = 0
    drafts: int = 0
    draft_tokens: int = 0
    accepted: list[int] = []
    """Accepted tokens by position in the draft."""
    prefill_s: float = 0.0
    """Pretended seconds until the first tokens of what has finished; likewise below."""
    decode_s: float = 0.0


class Turn(msgspec.Struct, kw_only=True):
    """One generation under way."""

    number: int
    prompt: list[int]
    cached: int
    limit: int
    made: list[int] = []
    spent_s: list[float] = []
    """Pretended seconds of each step so far."""


class MakeBelieve:
    """The engine itself; one generation at a time or many, on one event loop."""

    def __init__(self, model: str, behaviour: Behaviour, faults: Faults) -> None:
        self.model = model
        self.behaviour = behaviour
        self.faults = faults
        self.counts = Counts(accepted=[0] * behaviour.draft_tokens)
        self._vocabulary: dict[str, int] = {}
        self._blocks: dict[int, None] = {}
        self._begun = 0
        self._carry = 0.0

    def forget(self) -> None:
        """Start counters and cache anew, as a restart does."""
        self.counts = Counts(accepted=[0] * self.behaviour.draft_tokens)
        self._blocks.clear()

    def tokenize(self, body: dict[str, Any]) -> list[int]:
        """Token ids of a request's prompt, rendered as its generation would render it."""
        if "messages" not in body:
            return self._ids(str(body.get("prompt", "")))
        turns = [f"<{each.get('role')}> {_content(each)}" for each in body["messages"]]
        tools = [msgspec.json.encode(tool).decode() for tool in body.get("tools") or ()]
        close = ["<assistant>"] if body.get("add_generation_prompt", True) else []
        return self._ids(" ".join([*tools, *turns, *close]))

    def begin(self, body: dict[str, Any]) -> Turn:
        """Look the prompt up in the cache and count it in."""
        prompt = self.tokenize(body)
        limit = int(body.get("max_tokens") or body.get("max_completion_tokens") or 16)
        stop = self.behaviour.answer_tokens
        turn = Turn(
            number=self._begun,
            prompt=prompt,
            cached=self._lookup(prompt),
            limit=limit if stop is None else min(limit, stop),
        )
        self._begun += 1
        self.counts.running += 1
        self.counts.prompt_tokens += len(prompt)
        return turn

    def steps(self, turn: Turn) -> Iterator[tuple[float, str, list[int]]]:
        """Generate: seconds, text and token ids of each step."""
        behaviour = self.behaviour
        fresh = len(turn.prompt) - turn.cached
        wait_s = behaviour.head_s + fresh * behaviour.prefill_token_s
        if behaviour.delay is not None:
            wait_s += behaviour.delay(turn.number)
        size = 1
        while size > 0:
            words = [self._word(turn, len(turn.made) + n) for n in range(size)]
            ids = [self._id(word) for word in words]
            turn.made += ids
            self.counts.generation_tokens += size
            turn.spent_s.append(wait_s)
            yield wait_s, "".join(words if self.faults.garbage else [f" {w}" for w in words]), ids
            wait_s = behaviour.step_s
            left = turn.limit - len(turn.made)
            size = 1 + self._draft(left - 1) if left else 0

    def end(self, turn: Turn, reason: str) -> None:
        """Count it out; what was computed stays in the cache."""
        self.counts.running -= 1
        self.counts.finished[reason] = self.counts.finished.get(reason, 0) + 1
        self.counts.prefill_s += sum(turn.spent_s[:1])
        self.counts.decode_s += sum(turn.spent_s[1:])
        self._keep([*turn.prompt, *turn.made])

    def finish_reason(self, turn: Turn) -> str:
        """Why a whole generation ended."""
        return "stop" if turn.limit == self.behaviour.answer_tokens else "length"

    def usage(self, turn: Turn) -> dict[str, Any]:
        """The final usage."""
        cached = None if self.faults.no_cached_in_usage else turn.cached
        return scripts.usage(len(turn.prompt), len(turn.made), cached)

    def _lookup(self, prompt: Sequence[int]) -> int:
        if self.faults.cache_off:
            return 0
        # The last token is always computed: its logits are what generation begins with.
        keys = self._keys(prompt[:-1])
        found = next(
            (place for place, key in enumerate(keys) if key not in self._blocks), len(keys)
        )
        found -= min(found, 1 if self.behaviour.draft_tokens else 0)
        hits = found * self.behaviour.block_size
        self.counts.prefix_queries += len(prompt)
        self.counts.prefix_hits += hits
        return hits

    def _keep(self, tokens: Sequence[int]) -> None:
        for key in self._keys(tokens):
            self._blocks.pop(key, None)
            self._blocks[key] = None
        while len(self._blocks) > self.behaviour.cache_blocks:
            del self._blocks[next(iter(self._blocks))]

    def _keys(self, tokens: Sequence[int]) -> list[int]:
        """A key for each full block, which stands for all the tokens up to its end."""
        size, keys, before = self.behaviour.block_size, [], 0
        for start in range(0, len(tokens) - size + 1, size):
            before = hash((before, *tokens[start : start + size]))
            keys.append(before)
        return keys

    def _draft(self, room: int) -> int:
        """Draft and verify once; give how many tokens were accepted, ``room`` at most."""
        proposed = self.behaviour.draft_tokens
        if not proposed or self.faults.drafter_silent:
            return 0
        self._carry += 0.0 if self.faults.zero_acceptance else proposed * self.behaviour.acceptance
        accepted = min(int(self._carry), proposed, room)
        self._carry -= accepted
        self.counts.drafts += 1
        self.counts.draft_tokens += proposed
        for position in range(accepted):
            self.counts.accepted[position] += 1
        return accepted

    def _word(self, turn: Turn, place: int) -> str:
        if self.faults.garbage:
            return "!"
        seed = zlib.crc32(repr(turn.prompt).encode())
        return f"word{(seed + 7 * place) % _WORDS}"

    def _ids(self, text: str) -> list[int]:
        return [self._id(word) for word in text.split()]

    def _id(self, word: str) -> int:
        return self._vocabulary.setdefault(word, len(self._vocabulary) + 1)


def _content(message: dict[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    return "" if content is None else msgspec.json.encode(content).decode()
