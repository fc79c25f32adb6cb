"""``python -m pytest_llmperf.history``: look at a history, build its index anew, decide about it.

What each command does is in ``store`` and ``reader``; here it is asked for and told.
"""

from __future__ import annotations

import argparse
import getpass
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from pytest_llmperf import place
from pytest_llmperf.errors import LlmperfError, UsageError
from pytest_llmperf.evidence import NAME as EVIDENCE
from pytest_llmperf.evidence import read
from pytest_llmperf.history import FOLDER, MEAN, RATIO, History, PastSession, Rules, rank, roll
from pytest_llmperf.history.derive import derive
from pytest_llmperf.units import counted, quantity
from pytest_llmperf.verdict import Word

_ABOUT = "Look at a history of sessions, build its index anew, and decide about what is in it."
_FAILED = 1


def main(arguments: Sequence[str] | None = None, tell: Callable[[str], object] = print) -> int:
    """Carry out one command; 0 when it is done, 1 with the reason on the error stream if not."""
    asked = _parser().parse_args(arguments)
    try:
        _check_there(asked)
        with History(asked.history) as history:
            return int(asked.command(history, asked, tell))
    except LlmperfError as error:
        sys.stderr.write(f"{error}\n")
        return _FAILED


def _check_there(asked: argparse.Namespace) -> None:
    """Refuse to list what is not there: an empty list would look like an empty history.

    :raises UsageError: the folder is missing, and the command neither fills it nor does without.
    """
    if asked.command not in {_record, _import, _rank} and not asked.history.is_dir():
        raise UsageError(
            f"There is no history in {asked.history}.",
            "The folder does not exist.",
            "Name it with --history, or record into it with pytest --llmperf-record.",
        )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m pytest_llmperf.history", description=_ABOUT)
    parser.add_argument("--history", type=Path, default=Path(FOLDER), metavar="DIR")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add(commands, "list", _list, "what each gate's past sessions are, and what does not count")
    _add(commands, "rebuild", _rebuild, "build the index anew from evidence and decisions")
    for name, command, text in (
        ("accept", _accept, "let a gate's regressions into history"),
        ("anchor", _anchor, "pin a gate's newest sessions as what later ones are held against"),
        ("retire", _retire, "say that a gate is gone for good"),
    ):
        decision = _add(commands, name, command, text)
        decision.add_argument("gate", help="a node id, as `list` prints it")
        decision.add_argument("--reason", required=True, help="why; kept with the decision")
        decision.add_argument("--who", help="who decides (default: you)")
        if name == "accept":
            decision.add_argument("--session", action="append", metavar="ID", help="only this one")
        if name == "anchor":
            decision.add_argument("--label", required=True, help="the anchor's name: a release")
    adding = _add(commands, "add", _record, "take in a run's evidence whose gates nobody judged")
    adding.add_argument("folder", type=Path, help="the folder of one run's evidence")
    adding.add_argument(
        "--boots", type=int, default=Rules().boots, help="the fewest boots of a gate"
    )
    ranking = _add(commands, "rank", _rank, "line up machines by their evidence; no gate")
    ranking.add_argument("folders", type=Path, nargs="+", help="evidence of one run each")
    importing = _add(commands, "import", _import, "take in old results of pytest-benchmark")
    importing.add_argument("file", type=Path, nargs="+", help="files of .benchmarks/")
    return parser


def _add(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    command: Callable[[History, argparse.Namespace, Callable[[str], object]], int],
    text: str,
) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=text, description=text)
    parser.set_defaults(command=command)
    return parser


def _list(history: History, asked: argparse.Namespace, tell: Callable[[str], object]) -> int:
    known, measured = history.gates(), history.measured_gates()
    if not measured:
        tell(f"No session is stored in {asked.history}.")
    for gate in measured:
        tell(gate if gate in known else f"{gate} (not on the roll)")
        for line in _lines(history.everything(gate)):
            tell(f"  {line}")
        anchor = history.anchor(gate)
        if anchor is not None:
            tell(f"  anchor {anchor.label}: {anchor.reason} ({anchor.who}, {anchor.when})")
    _tell_problems(history, tell)
    return 0


def _lines(sessions: Iterable[PastSession]) -> list[str]:
    return [
        f"{each.started_at}  {each.session_id}  {each.series}  {_number(each)}  "
        f"({each.denominator_id})  "
        f"{counted(len(each.boots), 'boot') if each.replicated else each.label}  "
        f"{each.standing.state}{': ' + each.standing.reason if each.standing.reason else ''}"
        for each in sessions
    ]


def _number(past: PastSession) -> str:
    """The typical boot's median or ratio; unrounded numbers stand in the evidence."""
    statistic = RATIO if past.series == "ratio" else "p50"
    mean = past.mean(statistic)
    mean = past.mean(MEAN) if mean is None else mean
    rate = past.place.facts.get("unit") == "output_token"
    unit = "x" if past.series == "ratio" else "tok/s" if rate else "s"
    return quantity(None if mean is None else math.exp(mean), unit)


def _rebuild(history: History, _: argparse.Namespace, tell: Callable[[str], object]) -> int:
    history.rebuild()
    tell(f"{counted(len(history.gates()), 'gate')} in {history.root}")
    return _FAILED if _tell_problems(history, tell) else 0


def _tell_problems(history: History, tell: Callable[[str], object]) -> bool:
    for each in history.problems:
        tell(f"does not count: {each}")
    return bool(history.problems)


def _accept(history: History, asked: argparse.Namespace, tell: Callable[[str], object]) -> int:
    decided = history.accept(asked.gate, asked.reason, _who(asked), sessions=asked.session)
    tell(f"accepted {asked.gate} in {', '.join(decided.sessions)}")
    return 0


def _anchor(history: History, asked: argparse.Namespace, tell: Callable[[str], object]) -> int:
    decided = history.pin_anchor(asked.gate, asked.reason, _who(asked), label=asked.label)
    tell(f"anchor {asked.label} of {asked.gate}: {counted(len(decided.sessions), 'session')}")
    return 0


def _retire(history: History, asked: argparse.Namespace, tell: Callable[[str], object]) -> int:
    history.retire(asked.gate, asked.reason, _who(asked))
    tell(f"retired {asked.gate}")
    return 0


def _record(history: History, asked: argparse.Namespace, tell: Callable[[str], object]) -> int:
    derived = derive(read(asked.folder / EVIDENCE))
    words: dict[str, Word | None] = {
        each.gate: "INVALID" if roll.problem(derived, each.gate) else None
        for each in derived.series
    }
    admission = history.record_session(asked.folder, words, rules=Rules(boots=asked.boots))
    for line in admission.lines:
        tell(line)
    return 0 if admission.entered else _FAILED


def _import(history: History, asked: argparse.Namespace, tell: Callable[[str], object]) -> int:
    for file in asked.file:
        for line in history.import_benchmarks(file, place.facts()).lines:
            tell(line)
    return 0


def _rank(_: History, asked: argparse.Namespace, tell: Callable[[str], object]) -> int:
    for line in rank.lines(asked.folders):
        tell(line)
    return 0


def _who(asked: argparse.Namespace) -> str:
    """Who decides: the name given, else the system's; nobody is refused later."""
    if asked.who is not None:
        return str(asked.who)
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""


if __name__ == "__main__":
    sys.exit(main())
