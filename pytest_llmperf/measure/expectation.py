"""What each planned step must show by the server's own tokenizer, and whether a plan fits it.

Planning is in ``plan`` and ``load_plan``; what the answers then showed is in ``proof``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from pytest_llmperf.errors import UsageError
from pytest_llmperf.plan import Step
from pytest_llmperf.planned import PlannedRequest
from pytest_llmperf.proof import expected_hits

if TYPE_CHECKING:
    from pytest_llmperf.measure.work import Target


class Expected(msgspec.Struct, frozen=True, kw_only=True):
    """A step and what the server's own tokenizer says it must show."""

    step: Step
    prompt_tokens: int | None = None
    common: int | None = None
    hits: int | None = None

    @property
    def new_tokens(self) -> int:
        """Tokens that it may add to the KV cache beyond what it shares."""
        return (self.prompt_tokens or 0) - (self.common or 0) + self.step.request.max_tokens


class Tokens:
    """Token ids by the servers' own tokenizers, each prompt asked for once."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], list[int]] = {}

    def of(self, target: Target, request: PlannedRequest) -> list[int]:
        """The token ids of one rendered prompt."""
        key = (target.arm.boot_id, request.digest())
        if key not in self._known:
            answer = target.client.post_json("/tokenize", _rendering(request, target.running.model))
            self._known[key] = list(answer["tokens"])
        return self._known[key]

    def expect(self, target: Target, step: Step) -> Expected:
        """What a step must show; nothing is known where the server has no ``/tokenize``."""
        facts = target.running.engine.facts
        if not facts.tokenize:
            return Expected(step=step)
        mine = self.of(target, step.request)
        if step.after is None:
            return Expected(step=step, prompt_tokens=len(mine))
        common = min(_common(mine, self.of(target, step.after)), len(mine) - 1)
        hits = None
        if facts.block_size is not None:
            # Whoever attaches declares no drafter, and the server has one all the same.
            drafting = bool(target.arm.declared.speculation or facts.speculates)
            hits = expected_hits(common, facts.block_size, speculation=drafting)
        return Expected(step=step, prompt_tokens=len(mine), common=common, hits=hits)


def check_provable(target: Target, min_cached_share: float | None) -> None:
    """Refuse a cached turn of which nobody could say how many tokens had to be cached.

    :raises UsageError: the server does not say what that takes, and no share is declared.
    """
    facts = target.running.engine.facts
    if target.arm.denominator.prefix != "warm" or min_cached_share is not None:
        return
    lacking = "/tokenize" if not facts.tokenize else "block size" if not facts.block_size else None
    if lacking is not None:
        raise UsageError(
            f"What a cached turn on {target.arm.engine} has to hit cannot be known.",
            f"The server at {target.running.engine.url} gives no {lacking}; nothing was sent.",
            "State min_cached_share=0.9 or so in the marker, or serve /tokenize and /metrics.",
        )


def check_context(target: Target, planned: Sequence[Expected]) -> None:
    """Refuse a request that overflows the context.

    :raises UsageError: if one does.
    """
    length = target.running.engine.facts.max_model_len
    for each in planned:
        needed = (each.prompt_tokens or 0) + each.step.request.max_tokens
        if length is not None and needed > length:
            raise UsageError(
                f"A prompt of {each.prompt_tokens} tokens and {each.step.request.max_tokens} to "
                f"come do not fit the engine {target.arm.engine}.",
                f"Its context is {length} tokens long.",
                "Shorten the prompt, lower max_tokens, or raise --max-model-len in the profile.",
            )


def check_cache(target: Target, held: int, what: str) -> None:
    """Refuse what overflows the KV cache before it is measured.

    :raises UsageError: if it does.
    """
    facts = target.running.engine.facts
    if facts.block_size is None or facts.cache_blocks is None:
        return
    capacity = facts.block_size * facts.cache_blocks
    if held > capacity:
        raise UsageError(
            f"{what} of this measurement holds {held} tokens on the engine "
            f"{target.arm.engine}: what was primed would be evicted before it is measured.",
            f"Its KV cache holds {capacity} tokens.",
            "Shorten the prompts, or give the KV cache more memory in the profile.",
        )


def _rendering(request: PlannedRequest, model: str) -> dict[str, Any]:
    if request.endpoint == "completions":
        return {"model": model, "prompt": request.text}
    body: dict[str, Any] = {"model": model, "messages": list(request.messages)}
    if request.tools:
        body["tools"] = list(request.tools)
    return body | {"add_generation_prompt": True}


def _common(mine: Sequence[int], earlier: Sequence[int]) -> int:
    """How many leading tokens two prompts share."""
    pairs = enumerate(zip(mine, earlier, strict=False))
    shorter = min(len(mine), len(earlier))
    return next((index for index, (one, two) in pairs if one != two), shorter)
