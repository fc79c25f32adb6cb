"""The instrument's check on itself in every run: odd against even blocks of what was measured.

The test is ``assumption.instrument``. A failure says that two halves of one thing differ by where
they stood in the plan, so that no verdict of the session can be trusted; it is never a regression.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

from pytest_llmperf import sample
from pytest_llmperf.assumption.instrument import ALPHA_SELF, self_check
from pytest_llmperf.denominator import Denominator
from pytest_llmperf.evidence import Measured
from pytest_llmperf.proof import Contradiction
from pytest_llmperf.record import Request
from pytest_llmperf.units import probability, ratio

_OF_A_CONVERSATION = 2
"""Slashes in the name of a conversation's turn: workload, conversation, branch."""

_EQUAL = 1e-9
_FEWEST_TURNS = 12


def failure(boots: Sequence[Measured], of: Denominator, *, checks: int = 1) -> Contradiction | None:
    """Hold odd against even blocks of each boot; ``None`` where they agree or cannot be told.

    What prompts differ by is taken out first: each turn counts against the mean of its own prompt
    (for a conversation's turns, of that conversation), so that a plan which always puts the same
    prompts in odd blocks is not mistaken for a fault.

    :param checks: how many such checks a session makes; they share the level.
    """
    if of.streams != 1 or of.arrival != "closed":
        return None  # turns of several streams have no order of blocks
    for boot in boots:
        blocks = _blocks(boot, of)
        if not blocks:
            continue
        found = self_check(blocks, alpha=ALPHA_SELF / max(checks, 1))
        if found.is_sound is False:
            return Contradiction(
                kind="instrument",
                reason="The instrument contradicts itself: odd and even blocks of the same thing "
                "differ.",
                evidence=f"In {boot.measurement.gate}, arm {boot.arm.name}, odd blocks are "
                f"{ratio(found.ratio)} of even ones ({probability(found.p)}, "
                f"{found.pairs} pairs of blocks).",
                remedy="Trust no verdict of this session. Look for what comes and goes with every "
                "other block (another job, a timer, a proxy), and measure again.",
            )
    return None


def _blocks(boot: Measured, of: Denominator) -> list[float]:
    """Log means of blocks in their order, without what their prompts differ by; else nothing."""
    drafts = boot.arm.declared.draft_tokens
    logs = [
        (_prompt(turn), turn.block, math.log(value))
        for turn in boot.turns
        if turn.block is not None
        and (value := sample.value(turn, of, drafts)) is not None
        and value > 0
    ]
    if len(logs) < _FEWEST_TURNS:
        return []
    by_prompt: dict[str | None, list[float]] = {}
    for prompt, _, log in logs:
        by_prompt.setdefault(prompt, []).append(log)
    means = {prompt: fmean(each) for prompt, each in by_prompt.items()}
    blocks: dict[int, list[float]] = {}
    for prompt, block, log in logs:
        blocks.setdefault(block, []).append(log - means[prompt])
    found = [fmean(blocks[block]) for block in sorted(blocks)]
    return found if any(abs(each) > _EQUAL for each in found) else []


def _prompt(turn: Request) -> str | None:
    if turn.prompt is not None and turn.prompt.count("/") == _OF_A_CONVERSATION:
        return turn.prompt.rpartition("/")[0]
    return turn.prompt
