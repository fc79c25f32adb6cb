"""Machines lined up by what they measured of one gate: a report, never a gate.

Only numbers of the same thing are lined up; which fields differ otherwise is said. Whether two
numbers of one machine differ by more than chance is the business of gates.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean, median

import msgspec

from pytest_llmperf.errors import EvidenceError
from pytest_llmperf.evidence import Evidence, Measured, read
from pytest_llmperf.identity import Difference, Half, differences, machine_facts
from pytest_llmperf.identity import place_of as place_of_arm
from pytest_llmperf.identity import subject_of as subject_of_arm
from pytest_llmperf.run import Run
from pytest_llmperf.units import counted, quantity

_BUILD = "build."
_FEWEST = 2
_CANDIDATE = "candidate"


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """One folder's numbers of one gate."""

    folder: Path
    run: Run
    machine: str

    @property
    def estimate(self) -> float:
        """The typical boot's median: the geometric mean over boots."""
        return math.exp(fmean(math.log(each) for each in self.medians))

    @property
    def medians(self) -> tuple[float, ...]:
        """The median of each boot that has a number."""
        return tuple(median(values) for values in self.run.values if values)

    @property
    def line(self) -> str:
        """The machine with its number, turns and boots."""
        unit = self.run.denominator.unit_text
        low, high = (quantity(end(self.medians), unit) for end in (min, max))
        boots = counted(len(self.medians), "boot")
        spread = f", {low} to {high} between boots" if len(self.medians) > 1 else ""
        turns = counted(len(self.run.turns), "turn")
        return (
            f"{quantity(self.estimate, unit)}  {self.machine}  {turns} of {boots}{spread}"
            f"  ({self.folder})"
        )


def lines(folders: Sequence[Path]) -> list[str]:
    """Line up the folders' machines for each gate that all of them measured.

    :raises EvidenceError: fewer than two folders, no gate in common, a measurement that is invalid,
        or numbers that are of different things; the fields are named.
    """
    if len(folders) < _FEWEST:
        raise EvidenceError(
            f"{counted(len(folders), 'folder')} cannot be ranked.",
            "A rank is of two or more.",
            "Name the evidence folders of several machines.",
        )
    evidence = {folder: read(folder) for folder in folders}
    gates = [
        gate
        for gate in next(iter(evidence.values())).gates
        if all(gate in each.gates for each in evidence.values())
    ]
    if not gates:
        raise EvidenceError(
            "These folders have no gate in common.",
            "; ".join(f"{folder} has {each.contents()}" for folder, each in evidence.items()),
            "Run the same suite on every machine.",
        )
    return [line for gate in gates for line in _gate(gate, evidence)]


def _gate(gate: str, evidence: Mapping[Path, Evidence]) -> Iterator[str]:
    standings = [_standing(gate, folder, each) for folder, each in evidence.items()]
    first, *others = standings
    problems = [line for other in others for line in _unlike(first, other)]
    if problems:
        fields = counted(len({line.partition(":")[0] for line in problems}), "field")
        raise EvidenceError(
            f"{gate} cannot be ranked: its numbers are of different things.",
            f"{fields} differ or are unknown:\n" + "\n".join(f"- {each}" for each in problems),
            "Measure the same on every machine: one profile, one suite, one version of the plugin.",
        )
    denominator = first.run.denominator
    yield f"{gate}: median, {denominator.words}"
    ordered = sorted(standings, key=lambda each: each.estimate)
    for place, each in enumerate(
        reversed(ordered) if denominator.higher_is_better else ordered, start=1
    ):
        yield f"  {place}. {each.line}"
    builds = dict.fromkeys(line for other in others for line in _builds(first, other))
    yield from (f"  note: {each}" for each in builds)
    yield "  No gate: nothing is judged, and the order says nothing about chance."


def _standing(gate: str, folder: Path, evidence: Evidence) -> Standing:
    boots = [
        arm
        for start in evidence.measurements(gate)
        if start.stage == "judged" and start.call == 0
        for arm in evidence.measured(start.measurement_id)
        if arm.arm.name == _CANDIDATE
    ]
    run = Run(boots)
    if run.contradictions or not any(run.values):
        why = run.contradictions[0].reason if run.contradictions else "No turn has a number."
        raise EvidenceError(
            f"{gate} of {folder} cannot be ranked: it is INVALID.", why, "Measure it again there."
        )
    return Standing(folder=folder, run=run, machine=_machine(boots[-1]))


def _machine(measured: Measured) -> str:
    facts = {} if measured.session is None else measured.session.place
    named = facts.get("gpu") if facts.get("gpu") not in (None, "none") else facts.get("cpu")
    return f"{named or 'an unknown machine'} [{facts.get('machine') or 'unknown'}]"


def _unlike(mine: Standing, theirs: Standing) -> list[str]:
    """Fields other than the machine's and the build's in which two folders differ."""
    found = _differences(mine, theirs)
    return [f"{each} ({theirs.folder})" for each in found if not each.field.startswith(_BUILD)]


def _builds(mine: Standing, theirs: Standing) -> list[str]:
    """What differs between the engines' builds, or is not known to agree."""
    found = _differences(mine, theirs)
    return [f"{each} ({theirs.folder})" for each in found if each.field.startswith(_BUILD)]


def _differences(mine: Standing, theirs: Standing) -> list[Difference]:
    one, other = mine.run.measured, theirs.run.measured
    places = (_without_machine(one), _without_machine(other))
    subjects = (subject_of_arm(one), subject_of_arm(other))
    return [*differences(*places), *differences(*subjects)]


def _without_machine(measured: Measured) -> Half:
    """The place without the facts of its machine, which may differ between machines."""
    session = measured.session
    machines = {"machine", "gpu", "gpu_driver"}
    machines |= machine_facts({} if session is None else session.place).keys()
    place = place_of_arm(measured)
    kept = {field: value for field, value in place.facts.items() if field not in machines}
    return msgspec.structs.replace(place, facts=kept)
