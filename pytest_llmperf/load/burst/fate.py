"""Each request of a burst has one fate; together they are as many as were planned, or it shows.

How long those that were taken waited is in ``wait``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Literal

import msgspec

from pytest_llmperf.record import FailureKind, Request
from pytest_llmperf.units import count

Fate = Literal["completed", "refused", "not connected", "reset", "timed out", "aborted"]

_FATES: dict[FailureKind, Fate] = {
    "connect": "not connected",
    "reset": "reset",
    "timeout": "timed out",
    "stalled": "timed out",
    "interrupted": "aborted",
    "server_error": "aborted",
    "protocol": "aborted",
    "no_token": "aborted",
    "incomplete": "aborted",
    "cancelled": "aborted",
}
_FIRST_ERROR = 300
_TURNED_AWAY = (429, 503)
"""Too many requests, and not now: with any other status the caller is left with nothing."""


def fate(request: Request) -> Fate:
    """What became of one request; a connection that never was and one that broke are apart."""
    if request.failure is None:
        return "completed"
    if request.failure.kind == "refused":
        return "refused" if request.http_status in (None, *_TURNED_AWAY) else "aborted"
    return "refused" if _is_in_stream(request) else _FATES[request.failure.kind]


def _is_in_stream(request: Request) -> bool:
    """Whether it was refused inside a 200 stream: the status was sent before the queue was full."""
    failure = request.failure
    has_begun = request.stamps.first_token_ns is not None
    return failure is not None and failure.code in _TURNED_AWAY and not has_begun


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """How many requests met which fate, of how many that were planned."""

    planned: int
    accepted: int
    """Answered with a 2xx status and not refused after it, whatever became of them then."""
    completed: int = 0
    refused: dict[str, int] = {}
    """By HTTP status, or by the code of an error event that came in place of an answer after a 2xx
    one; ``unknown`` where none is recorded. A refusal is an answer, not a loss."""
    not_connected: int = 0
    reset: int = 0
    """The connection broke before the first byte of an answer."""
    timed_out: int = 0
    aborted: dict[str, int] = {}
    """Broken off after they were accepted, left by us, or answered with a status that turns nobody
    away (``HTTP 504``); by the kind of failure."""

    @property
    def all_refused(self) -> int:
        """Refused, by any code."""
        return sum(self.refused.values())

    @property
    def all_aborted(self) -> int:
        """Aborted, for any reason."""
        return sum(self.aborted.values())

    @property
    def lost(self) -> int:
        """Without a whole answer and without a refusal: the caller was left with nothing."""
        return self.not_connected + self.reset + self.timed_out + self.all_aborted

    @property
    def accounted(self) -> int:
        """Requests with a fate."""
        return self.completed + self.all_refused + self.lost

    @property
    def unaccounted(self) -> int:
        """Planned requests without a record; negative where more were recorded than planned."""
        return self.planned - self.accounted

    @property
    def words(self) -> str:
        """The sum as one line for a person."""
        parts = [
            f"{count(self.completed)} completed",
            f"{count(self.all_refused)} refused{_by(self.refused)}",
            f"{count(self.not_connected)} not connected",
            f"{count(self.reset)} reset",
            f"{count(self.timed_out)} timed out",
            f"{count(self.all_aborted)} aborted{_by(self.aborted)}",
        ]
        return f"{' + '.join(parts)} = {count(self.accounted)} of {count(self.planned)}"


def tally(requests: Iterable[Request], *, planned: int) -> Tally:
    """Count the fates of a burst's requests."""
    sent = list(requests)
    fates = Counter(fate(each) for each in sent)
    refused = [each for each in sent if fate(each) == "refused"]
    kinds = Counter(_why(each) for each in sent if fate(each) == "aborted")
    return Tally(
        planned=planned,
        accepted=sum(_was_accepted(each) for each in sent),
        completed=fates["completed"],
        refused=dict(sorted(Counter(map(_code, refused)).items())),
        not_connected=fates["not connected"],
        reset=fates["reset"],
        timed_out=fates["timed out"],
        aborted=dict(sorted(kinds.items())),
    )


def _was_accepted(request: Request) -> bool:
    is_good = request.http_status is not None and request.http_status < _FIRST_ERROR
    return is_good and not _is_in_stream(request)


def _why(request: Request) -> str:
    kind = "" if request.failure is None else request.failure.kind
    return f"HTTP {request.http_status}" if kind == "refused" else kind


def _code(request: Request) -> str:
    if _is_in_stream(request) and request.failure is not None:
        return f"{request.failure.code} in the stream"
    return "unknown" if request.http_status is None else str(request.http_status)


def _by(found: dict[str, int]) -> str:
    """Name the one code or kind, or each with its number."""
    if not found:
        return ""
    if len(found) == 1:
        return f" ({next(iter(found))})"
    return f" ({', '.join(f'{number} {name}' for name, number in found.items())})"
