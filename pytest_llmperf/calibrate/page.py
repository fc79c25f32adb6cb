"""The report of a calibration: tables for a terminal and for a page, and the page's pictures.

The figures are computed in ``promises``, ``levels`` and ``peers``; pictures are drawn in
``picture``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_llmperf.calibrate.peers import Peer
from pytest_llmperf.calibrate.picture import bars, lines
from pytest_llmperf.calibrate.promises import Held, Promise

_OURS = "screen, then confirm (ours)"

_PROMISES = (
    "A rate, its bound at 95 % (Clopper and Pearson; gates of one session count for as much as "
    "they are worth), and the limit where it is promised. At the edge of tolerance, and in the "
    "other tests, a level is met exactly, so that there the bound is the lower one, at 99.9 %: the "
    "level stands until it is refuted. Power is promised where noise is the base's or less. "
    "Elsewhere the printed detectable effect must be true; but not where boots alternate on a "
    "machine that wanders for longer than a session lasts, which boots in a row cannot tell: there "
    "pairs are resident."
)

_PEERS = (
    "One new run against one stored run of 100 turns, for each of 20 gates; a session is red when "
    "any of its gates is. Ours takes stored sessions and fresh pairs of boots, one gate slower."
)


@dataclass(frozen=True)
class Curve:
    """What one slower gate is called, by how much it is slower."""

    effects: tuple[float, ...]
    regress: tuple[float, ...]
    passed: tuple[float, ...]
    undecided: tuple[float, ...]


@dataclass(frozen=True)
class Calibration:
    """All that a run found."""

    settings: str
    """The command line that repeats it."""
    held: tuple[Held, ...]
    levels: tuple[Promise, ...]
    peers: dict[str, list[Peer]]
    """By scenario."""
    curve: Curve

    @property
    def broken(self) -> list[Promise]:
        """Promises that the counts do not bear out."""
        lines = [each for held in self.held for each in held.promises] + list(self.levels)
        return [each for each in lines if not each.is_kept]


def text(found: Calibration) -> str:
    """Word the report as Markdown, which a terminal shows as well."""
    parts = [
        "# Calibration",
        "What the statistics promise, held against simulated sessions. Made by",
        f"```\n{found.settings}\n```",
        _model(found),
        "## Promises",
        _PROMISES,
        *(_scenario(held) for held in found.held),
        "## One slower gate, by how much it is slower (base)",
        "![REGRESS, PASS and INCONCLUSIVE by slow-down](power.svg)",
        _curve(found.curve),
        "## Other rules on the same noise",
        _PEERS,
        "![False red sessions in the base scenario](peers.svg)",
        *(_peers(name, peers, found) for name, peers in found.peers.items()),
        "## Other tests",
        _table(found.levels),
        _verdict(found),
    ]
    return "\n\n".join(parts) + "\n"


def write(found: Calibration, folder: Path) -> Path:
    """Write the page and its pictures into a folder, and give the page's path."""
    folder.mkdir(parents=True, exist_ok=True)
    page = folder / "README.md"
    page.write_text(text(found), encoding="utf-8")
    curve = found.curve
    shares = {
        "REGRESS": curve.regress,
        "PASS": curve.passed,
        "INCONCLUSIVE": curve.undecided,
    }
    picture = lines(
        "One slower gate of 20", [100 * e for e in curve.effects], shares, "slower by, %"
    )
    (folder / "power.svg").write_text(picture, encoding="utf-8")
    rates = {_OURS: _rate(found.held[0], "false red a session, no change")}
    rates |= {peer.name: peer.false_session for peer in found.peers[found.held[0].noise.name]}
    picture = bars("False red sessions of 20 unchanged gates", rates, 0.01)
    (folder / "peers.svg").write_text(picture, encoding="utf-8")
    return page


def _model(found: Calibration) -> str:
    base = found.held[0].noise
    return (
        f"Base: boot sd {_percent(base.boot_sd)}, session sd {_percent(base.session_sd)}, turn "
        f"noise {_percent(base.turn_sd)}; 20 gates, to which {_percent(base.common)} of the "
        "variance of boots and sessions is common; 3 boots of 100 turns, 10 stored sessions, at "
        "most 6 pairs; tolerance 2 %, detect 10 %, alpha 1 %, beta 5 %. "
        f"{found.held[0].sessions:,} sessions a scenario."
    )


def _scenario(held: Held) -> str:
    facts = (
        f"{held.design.arms.capitalize()}; a session without a change takes "
        f"{held.null_pairs:.1f} pairs of boots; the printed detectable effect is "
        f"{_percent(held.detectable)} at the median."
    )
    return f"### {held.noise.name}\n\n{facts}\n\n{_table(held.promises)}"


def _table(promises: Sequence[Promise]) -> str:
    rows = [
        f"| {each.what} | {_percent(each.rate)} | {_percent(each.bound)} "
        f"| {_limit(each)} | {_kept(each)} |"
        for each in promises
    ]
    return "\n".join(["| what | rate | bound | promised | |", "|---|---:|---:|---:|---|", *rows])


def _curve(curve: Curve) -> str:
    columns = zip(curve.effects, curve.regress, curve.passed, curve.undecided, strict=True)
    rows = ["| " + " | ".join(_percent(each) for each in row) + " |" for row in columns]
    return "\n".join(
        ["| slower by | REGRESS | PASS | INCONCLUSIVE |", "|---:|---:|---:|---:|", *rows]
    )


def _peers(name: str, peers: Sequence[Peer], found: Calibration) -> str:
    held = next(each for each in found.held if each.noise.name == name)
    ours = (
        f"| {_OURS} | | {_percent(_rate(held, 'false red a session, no change'))} "
        f"| {_percent(_rate(held, 'REGRESS, +10 %, one slower gate'))} |"
    )
    rows = [
        f"| {p.name} | {_percent(p.false_alarm)} "
        f"| {_percent(p.false_session)} | {_percent(p.found)} |"
        for p in peers
    ]
    head = [
        f"### {name}\n",
        "| rule | false alarm | false red session | +10 % found |",
        "|---|---:|---:|---:|",
    ]
    return "\n".join([*head, ours, *rows])


def _rate(held: Held, what: str) -> float:
    return next(each.rate for each in held.promises if each.what == what)


def _verdict(found: Calibration) -> str:
    broken = [f"- {each.scenario}: {each.what}" for each in found.broken]
    return "\n".join(["Broken promises:\n", *broken]) if broken else "Every promise is kept."


def _limit(each: Promise) -> str:
    return "" if each.limit is None else f"{each.sense} {_percent(each.limit)}"


def _kept(each: Promise) -> str:
    return "" if each.limit is None else "kept" if each.is_kept else "**broken**"


def _percent(share: float) -> str:
    digits: Iterator[str] = (f"{100 * share:.{n}f}" for n in (2, 1))
    precise, short = digits
    return f"{short if share >= 0.10 or precise.endswith('0') else precise} %"  # noqa: PLR2004 - three digits
