"""Every exception this plugin raises, each saying what happened, the evidence, and the next step.

No message is built here: the room that notices a fault words it.

    LlmperfError
    ├── UsageError            a marker, profile, option or call is wrong; nothing was booted
    ├── EngineError           an engine did not do what its profile declares
    │   ├── EngineDied        it exited before or while it was used
    │   ├── EngineLate        it was not ready within its deadline
    │   ├── EngineForeign     something else answers where ours should
    │   └── HostBusy          another job measured on this host for longer than we may wait
    ├── NotAttached           servers are attached and this engine is not among them: a skip
    ├── EvidenceError         recorded evidence cannot be read, or is missing
    ├── InvalidMeasurement    the measurement did not measure what it declared (INVALID)
    └── Regression            a gate is red (REGRESS); also an AssertionError
"""

from __future__ import annotations


class LlmperfError(Exception):
    """Base of all errors here; its text is the three parts in order.

    :param what: what happened, with the value that triggered it.
    :param evidence: what was seen that says so; may span lines.
    :param next_step: what the reader can do about it.
    """

    def __init__(self, what: str, evidence: str, next_step: str) -> None:
        super().__init__(what, evidence, next_step)
        self.what = what
        self.evidence = evidence
        self.next_step = next_step

    def __str__(self) -> str:
        return "\n".join(part for part in (self.what, self.evidence, self.next_step) if part)

    @property
    def in_a_line(self) -> str:
        """What happened and what says so, to stand inside another sentence."""
        seen = " ".join(self.evidence.split())
        return ": ".join(part for part in (self.what.removesuffix("."), seen) if part)


class UsageError(LlmperfError):
    """A marker, profile, option or call is wrong; nothing was booted."""


class EngineError(LlmperfError):
    """An engine did not do what its profile declares; a gate that needed it is INVALID."""


class EngineDied(EngineError):
    """The engine's process exited before it was ready or while it was in use."""


class EngineLate(EngineError):
    """The engine was still not ready when its deadline passed without progress."""


class EngineForeign(EngineError):
    """Another process or another server answers on the address that should be ours."""


class HostBusy(EngineError):
    """Another job measured on this host for longer than we may wait; nothing was measured."""


class NotAttached(LlmperfError):
    """Servers are attached and this engine is not among them; its test is to be skipped."""


class EvidenceError(LlmperfError):
    """Recorded evidence cannot be read, has another schema, or lacks what a gate needs."""


class InvalidMeasurement(LlmperfError):
    """The measurement did not measure what it declared: INVALID, never a quiet number."""


class Regression(LlmperfError, AssertionError):
    """A gate is red: REGRESS, with estimate, interval, counts and denominator in the text."""
