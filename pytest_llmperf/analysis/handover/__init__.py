"""What the records of a failover come to: silence, losses, double answers, and who answered what.

Making a server fail is in the room ``failover``; what a test asserts of a handover, in ``claims``.
Everything here is computed from evidence, live and replayed alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from pytest_llmperf import proof
from pytest_llmperf.analysis.handover.proven import contradictions, findings
from pytest_llmperf.analysis.handover.switch import Ask, Silence, Switch
from pytest_llmperf.denominator import Denominator
from pytest_llmperf.evidence import Measured
from pytest_llmperf.gate import Gate
from pytest_llmperf.proof import Contradiction

__all__ = ["Ask", "Handover", "Silence", "Switch"]


class Handover:
    """A failover as measured: one switch, or one for each round."""

    def __init__(
        self,
        rounds: Sequence[Sequence[Measured]],
        *,
        fault: str,
        denominator: Denominator,
        gate: Gate | None = None,
        notes: Sequence[str] = (),
    ) -> None:
        self.switches = tuple(Switch(arms) for arms in rounds)
        self.fault = fault
        """The fault that the test declares."""
        self.denominator = denominator
        self.gate = gate
        self.notes = tuple(notes)

    @property
    def newest(self) -> Switch:
        """The switch of the last round."""
        return self.switches[-1]

    @property
    def worst_s(self) -> float | None:
        """The longest silence of any stream in any switch; ``None`` if one never heard again."""
        found = [each.worst_s for each in self.switches]
        known = [each for each in found if each is not None]
        return max(known) if len(known) == len(found) else None

    @property
    def lost(self) -> int:
        """Asks that no server answered, over all switches."""
        return sum(len(each.lost) for each in self.switches)

    @property
    def asked(self) -> int:
        """Everything that was asked, over all switches."""
        return sum(len(each.asks) for each in self.switches)

    @cached_property
    def contradictions(self) -> tuple[Contradiction, ...]:
        """Why this is no failover under load on a fit machine; empty where it is one."""
        found: dict[str, Contradiction] = {}
        for switch in self.switches:
            for each in (*contradictions(switch, self.fault), *proof.unfit(switch.first)):
                found.setdefault(each.kind, each)
        return tuple(found.values())

    @property
    def findings(self) -> tuple[str, ...]:
        """What a reader should know that does not make it invalid."""
        texts = [text for each in self.switches for text in findings(each)]
        firsts = (each.first for each in self.switches)
        texts += [found.text for first in firsts for found in proof.told_of_machine(first)]
        return tuple(dict.fromkeys([*self.notes, *texts]))
