"""Real pairs of boots on the miniature, run after run, and the noise they show: ``python -m`` this.

``add`` takes the fresh pairs out of evidence folders into one file, each pair once; the page is
made of that file. Simulated noise is in ``noise``.

    pytest perf_suites/test_no_regression.py --llmperf-mode=aa --llmperf-evidence=FOLDER
    python -m pytest_llmperf.calibrate.live add FOLDER
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path

import msgspec

from pytest_llmperf import proof
from pytest_llmperf.attribution.terms import Terms, terms
from pytest_llmperf.calibrate.live_page import text
from pytest_llmperf.denominator import Denominator
from pytest_llmperf.errors import EvidenceError
from pytest_llmperf.evidence import Evidence, Measured, read
from pytest_llmperf.sample import value

DATA = Path("docs/calibration/live.jsonl")
PAGE = Path("docs/calibration/live.md")
NO_PLANT = "none"


class Boot(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One arm of one fresh pair: a line of the data."""

    session: str
    plant: str
    """The candidate's profile, where it was another than the reference's; else ``none``."""
    gate: str
    """Node id without folders."""
    denominator: Denominator
    measurement: str
    arm: str
    values: tuple[float, ...]
    """Each turn's number in the denominator's unit, in the order sent."""
    terms: Terms
    """What the change of a number can be split into."""
    contradictions: tuple[str, ...] = ()
    """Kinds; a pair with any is counted and not used."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Add evidence to the data, make the page anew, and print it."""
    options = _options(arguments)
    known = load(options.data)
    fresh = [each for folder in options.folders for each in boots(read(folder), known)]
    _append(options.data, fresh)
    page = text([*known, *fresh])
    options.page.write_text(page, encoding="utf-8")
    sys.stdout.write(f"{page}\n{len(fresh) // 2} pairs added to {options.data}\n")
    return 0


def load(path: Path) -> list[Boot]:
    """Read the data; none where there is no file yet.

    :raises EvidenceError: a line is none of ours.
    """
    if not path.exists():
        return []
    found = []
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        try:
            found.append(msgspec.json.decode(line, type=Boot))
        except msgspec.MsgspecError as error:
            raise EvidenceError(
                f"{path}:{number} is no boot of a live pair.",
                str(error),
                "Take the line out, and add its evidence folder again.",
            ) from error
    return found


def boots(evidence: Evidence, known: Iterable[Boot] = ()) -> Iterator[Boot]:
    """Every completed fresh pair that is not known yet, both arms of it.

    :raises EvidenceError: the evidence holds several sessions.
    """
    if len(evidence.sessions) != 1:
        raise EvidenceError(
            f"The evidence holds {len(evidence.sessions)} sessions.",
            f"There is {evidence.contents()}.",
            "Add one session's folder after the other.",
        )
    taken = {each.measurement for each in known}
    for gate in evidence.gates:
        for start in evidence.measurements(gate):
            arms = evidence.measured(start.measurement_id)
            if start.stage == "confirm" and start.measurement_id not in taken:
                yield from _pair(evidence, arms)


def _pair(evidence: Evidence, arms: Sequence[Measured]) -> Iterator[Boot]:
    session = evidence.sessions[0]
    is_other = session.mode != "aa" and session.profile is not None
    if any(arm.end is None or not arm.end.completed for arm in arms):
        return  # cut short; what it lacks would be missing on one side only
    for arm in arms:
        start = arm.measurement
        yield Boot(
            session=session.session_id,
            plant=Path(session.profile or "").stem if is_other else NO_PLANT,
            gate=start.gate.rpartition("/")[2],
            denominator=arm.arm.denominator,
            measurement=start.measurement_id,
            arm=arm.arm.name,
            values=tuple(_values(arm)),
            terms=terms(arm),
            contradictions=tuple(each.kind for each in proof.contradictions(arm)),
        )


def _values(arm: Measured) -> Iterator[float]:
    for turn in arm.turns:
        found = value(turn, arm.arm.denominator, arm.arm.declared.draft_tokens)
        if found is not None:
            yield found


def _append(path: Path, fresh: Sequence[Boot]) -> None:
    with path.open("ab") as file:
        for _, pair in groupby(fresh, key=lambda each: each.measurement):
            file.write(b"".join(msgspec.json.encode(each) + b"\n" for each in pair))


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m pytest_llmperf.calibrate.live",
        description="Add the fresh pairs of evidence folders to the live data, each pair once.",
    )
    commands = parser.add_subparsers(required=True)
    add = commands.add_parser("add", help="add evidence and make the page anew")
    add.add_argument("folders", nargs="*", type=Path, help="one session each; none: only the page")
    add.add_argument("--data", type=Path, default=DATA, help="default: %(default)s")
    add.add_argument("--page", type=Path, default=PAGE, help="default: %(default)s")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
