"""In which order a measurement sends its requests: warm-up, priming, and turns in ABBA blocks.

Pure: no clock, no network. What a step asks for is in ``workload``; sending it is in ``session``.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from pytest_llmperf.declaration import Declaration
from pytest_llmperf.denominator import Prefix
from pytest_llmperf.planned import PlannedRequest
from pytest_llmperf.record import Role
from pytest_llmperf.workload import Conversations, Prompts, Workload, nonce

CANDIDATE = "candidate"
REFERENCE = "reference"

BLOCK = 2
"""Turns of each arm in one block: A B B A, so that a steady drift cancels to second order."""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One request to send: which arm's engine gets it, in which role, in which block."""

    arm: str
    role: Role
    block: int
    request: PlannedRequest
    after: PlannedRequest | None = None
    """What was sent before it whose prefix it shares; ``None`` where nothing should be cached."""


def steps(
    workload: Workload, *, prefixes: dict[str, Prefix], turns: int, warmup: int, seed: int
) -> list[Step]:
    """Plan one measurement.

    :param prefixes: the cache state that each arm declares, by arm; one, two or four arms.
    :param turns: turns for each arm; rounded up to whole blocks where arms are compared.
    :param warmup: requests for each arm before, with fresh prompts of the same kind.
    :param seed: of the nonces; two runs with one seed send the same bytes.
    """
    planner = _Planner(workload, prefixes, seed)
    planned = list(planner.blocks("warmup", warmup, first=0))
    return planned + list(planner.blocks("turn", turns, first=warmup))


def whole_blocks(declaration: Declaration) -> int:
    """Turns for each arm: whole blocks where arms are compared."""
    turns = declaration.plan.turns
    if declaration.windows is not None:
        return turns
    return turns if declaration.arms == 1 else turns + turns % BLOCK


class _Planner:
    """Hands out prompts in order, so that no turn repeats what an earlier one left cached."""

    def __init__(self, workload: Workload, prefixes: dict[str, Prefix], seed: int) -> None:
        self._workload = workload
        self._prefixes = prefixes
        self._seed = seed

    def blocks(self, role: Role, turns: int, *, first: int) -> Iterator[Step]:
        """Yield whole blocks of ``turns`` turns for each arm; ``first`` numbers the prompts."""
        arms = list(self._prefixes)
        for start in range(0, turns, BLOCK):
            block = (first + start) // BLOCK if role == "turn" else start // BLOCK
            size = BLOCK if len(arms) > 1 else min(BLOCK, turns - start)
            yield from self._block(role, block, first + start, size, arms)

    def _block(self, role: Role, block: int, first: int, size: int, arms: list[str]) -> list[Step]:
        order = _order(arms, size, block=block)
        turns = [self._turn(role, block, arm, first + index) for arm, index in order]
        return self._primes(role, block, turns) + turns

    def _primes(self, role: Role, block: int, turns: list[Step]) -> list[Step]:
        """What must be in the cache before the block's turns: once for each arm and prompt."""
        primes: dict[tuple[str, str], Step] = {}
        for turn in turns:
            if turn.after is not None:
                key = (turn.arm, turn.after.digest())
                prime_role: Role = "warmup" if role == "warmup" else "prime"
                primes[key] = Step(
                    arm=turn.arm, role=prime_role, block=block, request=turn.after, after=None
                )
        return list(primes.values())

    def _turn(self, role: Role, block: int, arm: str, index: int) -> Step:
        prefix = self._prefixes[arm]
        request, after = self._request(prefix, index)
        return Step(arm=arm, role=role, block=block, request=request, after=after)

    def _request(self, prefix: Prefix, index: int) -> tuple[PlannedRequest, PlannedRequest | None]:
        if isinstance(self._workload, Conversations):
            return self._of_conversation(self._workload, prefix, index)
        return self._of_prompts(self._workload, prefix, index)

    def _of_conversation(
        self, workload: Conversations, prefix: Prefix, index: int
    ) -> tuple[PlannedRequest, PlannedRequest | None]:
        conversation, branch, life = _place(workload, index)
        if prefix == "cold":
            fresh = nonce(self._seed, "cold", index)
            return workload.turn(conversation, branch, fresh), None
        live = nonce(self._seed, f"live/{conversation}", life)
        turn = workload.turn(conversation, branch, live)
        return turn, workload.prime(conversation, live)

    def _of_prompts(
        self, workload: Prompts, prefix: Prefix, index: int
    ) -> tuple[PlannedRequest, PlannedRequest | None]:
        if prefix == "any":
            return workload.plain(index), None
        if prefix == "cold":
            return workload.cold(index, nonce(self._seed, "cold", index)), None
        live = workload.cold(index, nonce(self._seed, "live", index))
        return live, msgspec.structs.replace(live, max_tokens=1)


def _place(workload: Conversations, index: int) -> tuple[int, int, int]:
    """Which conversation and branch the ``index``-th turn takes, and in which of its lives.

    A block stays on one conversation; a conversation whose branches are used up starts again
    under another nonce, since a branch sent twice would be cached to its end.
    """
    pair, within = divmod(index, BLOCK)
    round_, conversation = divmod(pair, len(workload.histories))
    life, branch = divmod(round_ * BLOCK + within, len(workload.branches) - 1)
    return conversation, branch + 1, life


def _order(arms: list[str], size: int, *, block: int) -> list[tuple[str, int]]:
    """Each arm through the block's prompts, in an order whose way back mirrors its way there.

    A B B A over two arms, B A A B in the next block; over four arms A B D C C D B A, and so on
    through the rows of a Latin square in which each arm follows every other one once. So a steady
    drift cancels inside each block, and over four blocks no arm has a better place.
    """
    if len(arms) == 1:
        return [(arms[0], index) for index in range(size)]
    row = _WILLIAMS[block % 4] if len(arms) == 4 else ((0, 1), (1, 0))[block % 2]  # noqa: PLR2004 - the cells of a factorial
    there = [arms[place] for place in row]
    return [(arm, 0) for arm in there] + [(arm, 1) for arm in reversed(there)]


_WILLIAMS = ((0, 1, 3, 2), (1, 2, 0, 3), (2, 3, 1, 0), (3, 0, 2, 1))
"""A Latin square of four, balanced for who follows whom (Williams 1949)."""
