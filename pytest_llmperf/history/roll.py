"""The roll of gates: which a history knows, and which of them are missing from a run.

A gate that is missing, renamed or measures nothing is an error and never green.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Sequence

from pytest_llmperf.errors import EvidenceError, UsageError
from pytest_llmperf.history.decisions import Decision
from pytest_llmperf.history.derive import Derived, unix_seconds
from pytest_llmperf.history.layout import Judged
from pytest_llmperf.history.rows import GateRow
from pytest_llmperf.units import counted

RETIRE = "python -m pytest_llmperf.history retire GATE --reason WHY"
"""The command that says a gate is gone for good."""


def may_count(judged: Judged | None, problem: str | None) -> bool:
    """Whether a gate's session counts now, or would once its regression is accepted."""
    if problem is not None or judged is None:
        return False
    return judged.word != "INVALID" and judged.refused is None


def known(rows: Iterable[GateRow], decisions: Sequence[Decision]) -> tuple[str, ...]:
    """Gates with a session that counts or waits, begun after the gate was last retired."""
    retired = {each.gate: unix_seconds(each.when) for each in decisions if each.kind == "retire"}
    return tuple(
        sorted(
            {
                row.gate
                for row in rows
                if may_count(row.judged, row.problem)
                and row.started > retired.get(row.gate, float("-inf"))
            }
        )
    )


def missing(
    gates: Iterable[str], collected: Collection[str], present: Collection[str]
) -> tuple[str, ...]:
    """Gates of collected files that are not present, sorted."""
    files = set(collected)
    return tuple(sorted(gate for gate in gates if file_of(gate) in files and gate not in present))


def check(lost: Sequence[str], new: Collection[str]) -> None:
    """See that nothing is lost.

    :param new: gates that history does not know, one of which a lost one may be called now.
    :raises UsageError: something is.
    """
    if not lost:
        return
    raise UsageError(
        f"{counted(len(lost), 'known gate')} {'is' if len(lost) == 1 else 'are'} missing.",
        "\n".join(f"- {gate}{_perhaps(gate, new)}" for gate in lost),
        f"Bring it back under its name, or say that it is gone for good: {RETIRE}",
    )


def check_measured(gates: Collection[str], derived: Derived) -> None:
    """See that each of these gates measured something.

    :raises EvidenceError: one has no value, or no pair of arms to compare.
    """
    found = {gate: problem(derived, gate) for gate in sorted(gates)}
    measured = {each.gate for each in derived.series}
    empty = {each.gate for each in derived.series if not each.boots}
    null = [gate for gate in found if gate not in measured or gate in empty]
    if null:
        raise EvidenceError(
            f"{counted(len(null), 'gate')} measured nothing.",
            "\n".join(f"- {gate}: {found[gate] or 'nothing is recorded of it'}" for gate in null),
            "A gate without a number is an error and is never green; find out why.",
        )


def problem(derived: Derived, gate: str) -> str | None:
    """Why a gate's evidence is no measurement; ``None`` if it is one."""
    reasons = (each.problem for each in derived.series if each.gate == gate)
    return next((each for each in reasons if each is not None), None)


def file_of(gate: str) -> str:
    """The file of a node id."""
    return gate.partition("::")[0]


def _perhaps(gate: str, new: Collection[str]) -> str:
    """What a lost gate may be called now: the most similar new one of its file."""
    same_file = sorted(each for each in new if file_of(each) == file_of(gate))
    alike = difflib.get_close_matches(gate, same_file, n=1, cutoff=0.0)
    return f" (renamed to {alike[0]}?)" if alike else ""
