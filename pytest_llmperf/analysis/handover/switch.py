"""One switch from a server that failed to the next one, in figures.

Whether it was a failover under load at all, and who really answered, is in ``proven``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property

import msgspec

from pytest_llmperf import record
from pytest_llmperf.evidence import Measured
from pytest_llmperf.failover import is_answered
from pytest_llmperf.stream.doubt import SPLICED


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was asked, with all attempts at it in order."""

    name: str
    stream: int
    attempts: tuple[record.Request, ...]

    @property
    def answers(self) -> tuple[record.Request, ...]:
        """The attempts that gave a whole answer, the first to be whole first."""
        found = [each for each in self.attempts if is_answered(each)]
        return tuple(sorted(found, key=lambda each: each.stamps.closed_ns or 0))


class Silence(msgspec.Struct, frozen=True, kw_only=True):
    """What one stream heard around the switch. Times are nanoseconds of the client's clock."""

    stream: int
    last_ns: int | None
    """Its last token from the first server before it heard from the next one."""
    first_ns: int | None
    """Its first token from the next server after the fault; ``None``: it never came."""

    @property
    def gap_s(self) -> float | None:
        """Formula: first token of the next server - last good token of the first."""
        if self.last_ns is None or self.first_ns is None:
            return None
        return (self.first_ns - self.last_ns) / 1e9


class Switch:
    """A fault in the first server of an order, and what came of it.

    :param arms: the servers in the order of the failover.
    """

    def __init__(self, arms: Sequence[Measured]) -> None:
        self.arms = tuple(arms)
        self.first, *self.others = self.arms

    @property
    def fault(self) -> record.Fault | None:
        """What was done to the first server."""
        return next((each for each in self.first.faults if each.kind != "thawed"), None)

    @property
    def thaw(self) -> record.Fault | None:
        """When it was let go on, if it was frozen."""
        return next((each for each in self.first.faults if each.kind == "thawed"), None)

    @cached_property
    def attempts(self) -> tuple[record.Request, ...]:
        """Every attempt, in the order sent; warm-up is none."""
        found = [each for arm in self.arms for each in arm.turns if each.attempt_of is not None]
        return tuple(sorted(found, key=lambda each: each.stamps.sent_ns or 0))

    @cached_property
    def asks(self) -> tuple[Ask, ...]:
        """Everything that was asked."""
        by_name: dict[str, list[record.Request]] = {}
        for each in self.attempts:
            by_name.setdefault(each.attempt_of or "", []).append(each)
        return tuple(
            Ask(
                name=name,
                stream=tries[0].stream or 0,
                attempts=tuple(sorted(tries, key=lambda each: each.attempt or 0)),
            )
            for name, tries in by_name.items()
        )

    @property
    def lost(self) -> tuple[Ask, ...]:
        """Asks with neither ``[DONE]`` nor a finish reason on any attempt."""
        return tuple(each for each in self.asks if not each.answers)

    @property
    def twice(self) -> tuple[Ask, ...]:
        """Asks that two servers answered whole."""
        return tuple(each for each in self.asks if len(each.answers) > 1)

    @property
    def sent_again(self) -> tuple[Ask, ...]:
        """Asks that took more than one attempt."""
        return tuple(each for each in self.asks if len(each.attempts) > 1)

    @property
    def spliced(self) -> tuple[record.Request, ...]:
        """Answers whose answerer changed in mid-stream: a switch that somebody else made."""
        return tuple(each for each in self.attempts if is_spliced(each))

    @property
    def tokens_kept(self) -> int:
        """Tokens that broken attempts had received; each chunk whose tokens are unknown is one."""
        broken = (each for ask in self.sent_again for each in ask.attempts if not is_answered(each))
        return sum(chunk.tokens or 1 for each in broken for chunk in each.chunks)

    @cached_property
    def who(self) -> dict[str, int]:
        """How many asks each server answered first, by its boot, in the order of the failover."""
        found = Counter(each.answers[0].boot_id for each in self.asks if each.answers)
        return {arm.arm.boot_id: found.get(arm.arm.boot_id, 0) for arm in self.arms}

    @cached_property
    def silences(self) -> tuple[Silence, ...]:
        """What each stream heard; a spliced answer is nobody's, and counts for neither side."""
        streams = sorted({each.stream for each in self.asks})
        return tuple(self._silence([stream]) for stream in streams)

    @cached_property
    def overall(self) -> Silence:
        """The same over all streams together: as the service is seen from outside."""
        return self._silence(sorted({each.stream for each in self.asks}))

    @property
    def gaps_s(self) -> tuple[float | None, ...]:
        """Each stream's silence in seconds."""
        return tuple(each.gap_s for each in self.silences)

    @property
    def worst_s(self) -> float | None:
        """The longest silence; ``None`` where a stream never heard from the next server."""
        known = [each for each in self.gaps_s if each is not None]
        return max(known) if known and len(known) == len(self.gaps_s) else None

    def _silence(self, streams: Sequence[int]) -> Silence:
        fault_ns = 0 if self.fault is None else self.fault.begun_ns
        mine = [each for each in self.attempts if each.stream in streams and not is_spliced(each)]
        of_first = [each for each in mine if each.boot_id == self.first.arm.boot_id]
        of_next = [
            each
            for each in mine
            if each.boot_id != self.first.arm.boot_id and (each.stamps.closed_ns or 0) > fault_ns
        ]
        first_ns = min((at for at in _tokens(of_next) if at > fault_ns), default=None)
        heard = [at for at in _tokens(of_first) if first_ns is None or at < first_ns]
        return Silence(stream=streams[0], last_ns=max(heard, default=None), first_ns=first_ns)


def is_spliced(attempt: record.Request) -> bool:
    """Whether another answerer seems to have taken over in mid-stream."""
    return any(each.startswith(SPLICED) for each in attempt.warnings)


def _tokens(attempts: Iterable[record.Request]) -> list[int]:
    return [chunk.at_ns for each in attempts for chunk in each.chunks]
