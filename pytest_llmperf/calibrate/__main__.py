"""Hold every promise of the statistics against simulated sessions: ``python -m`` this.

The simulation is in ``noise`` and ``trial``, the promises in ``promises``, the page in ``page``.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pytest_llmperf.calibrate.levels import levels
from pytest_llmperf.calibrate.noise import Machine, Noise, Shape, scenarios
from pytest_llmperf.calibrate.page import Calibration, Curve, text, write
from pytest_llmperf.calibrate.peers import peers
from pytest_llmperf.calibrate.promises import Held, design_for, hold
from pytest_llmperf.calibrate.trial import Rule, judge, slowed

_ABOUT = """Hold every promise of the statistics against simulated sessions of a noisy machine,
print the report, and exit with 1 when one is broken: four minutes, or half of one with --quick."""

SESSIONS = 20_000
QUICK_SESSIONS = 2_000
BASE = Noise(name="base")
DRIFT = 0.10
EFFECTS = tuple(percent / 100 for percent in range(0, 21, 2))

_PEER_SHARE = 20
_CURVE_SHARE = 5
_PEER_SCENARIOS = 4
_FRACTION = 0.2
_MOST_PERCENT = 100


def main(arguments: Sequence[str] | None = None) -> int:
    """Simulate, print the report, write it where asked, and give 1 when a promise is broken."""
    options = _options(arguments)
    base = Noise(
        name="base",
        boot_sd=options.boot_sd,
        session_sd=options.session_sd,
        turn_sd=options.turn_sd,
    )
    found = calibrate(
        base,
        drift=options.drift,
        sessions=QUICK_SESSIONS if options.quick else SESSIONS,
        seed=options.seed,
        settings=_settings(options),
    )
    sys.stdout.write(text(found))
    if options.out is not None:
        sys.stdout.write(f"\nwritten to {write(found, options.out)}\n")
    return 1 if found.broken else 0


def calibrate(base: Noise, *, drift: float, sessions: int, seed: int, settings: str) -> Calibration:
    """Hold all scenarios around a base; each draws from a seed of its own."""
    shape, found = Shape(), scenarios(base, drift)
    held = []
    for i, noise in enumerate(found):
        sys.stderr.write(f"{noise.name}: {sessions:,} sessions\n")
        held.append(_hold(noise, sessions, seed + i, shape))
    compared = {
        noise.name: peers(noise, sessions=sessions // _PEER_SHARE, seed=seed, shape=shape)
        for noise in found[:_PEER_SCENARIOS]
    }
    tests = levels(base, trials=sessions, seed=seed, shape=shape)
    curve = power(base, sessions=sessions // _CURVE_SHARE, seed=seed, shape=shape)
    return Calibration(settings, tuple(held), tuple(tests), compared, curve)


def power(base: Noise, *, sessions: int, seed: int, shape: Shape) -> Curve:
    """Slow one gate of a session by more and more."""
    rng = np.random.default_rng(seed)
    drawn, rule = Machine(base, shape, rng).sessions(sessions), Rule(design=design_for(base, shape))
    first = np.arange(shape.gates) == 0
    said = [judge(slowed(drawn, np.log1p(effect) * first), rule, rng) for effect in EFFECTS]
    red = tuple(float(each.regress[:, 0].mean()) for each in said)
    green = tuple(float(each.passed[:, 0].mean()) for each in said)
    return Curve(EFFECTS, red, green, tuple(1 - r - g for r, g in zip(red, green, strict=True)))


def share(words: str) -> float:
    """Read a standard deviation: ``3`` and ``3%`` are percent, a number under 0.2 is a fraction.

    :raises ArgumentTypeError: it is no number, a negative one, or beyond all sense.
    """
    try:
        number = float(words.removesuffix("%"))
    except ValueError:
        number = math.nan
    if not 0 <= number <= _MOST_PERCENT:
        raise argparse.ArgumentTypeError(
            f"{words!r} is no sd: give a percentage from 0 to {_MOST_PERCENT}, as 3, 3% or 0.03"
        )
    return number if number < _FRACTION and not words.endswith("%") else number / 100


def natural(words: str) -> int:
    """Read a seed: a whole number from 0 on.

    :raises ArgumentTypeError: it is none.
    """
    if not words.isdecimal():
        raise argparse.ArgumentTypeError(f"{words!r} is no seed: give a whole number from 0 on")
    return int(words)


def folder(words: str) -> Path:
    """Read where the page goes, and make the folder: a long run is not lost for want of one.

    :raises ArgumentTypeError: it cannot be made.
    """
    path = Path(words)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{words!r} is no folder: {error.strerror}") from None
    return path


def is_quiet(noise: Noise) -> bool:
    """Whether power is promised: no drift or bad boots, and no more noise than base."""
    return (
        not (noise.drift_sd or noise.bad_boots or noise.autocorrelation or noise.spikes)
        and noise.boot_sd <= BASE.boot_sd
        and noise.session_sd <= BASE.session_sd
        and noise.turn_sd <= BASE.turn_sd
    )


def _hold(noise: Noise, sessions: int, seed: int, shape: Shape) -> Held:
    return hold(noise, sessions=sessions, seed=seed, is_promised=is_quiet(noise), shape=shape)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m pytest_llmperf.calibrate", description=_ABOUT)
    parser.add_argument("--seed", type=natural, default=1, help="of all random draws (default 1)")
    parser.add_argument(
        "--quick", action="store_true", help=f"{QUICK_SESSIONS:,} sessions a scenario"
    )
    for name, sd in (
        ("boot", BASE.boot_sd),
        ("session", BASE.session_sd),
        ("turn", BASE.turn_sd),
    ):
        parser.add_argument(
            f"--{name}-sd",
            type=share,
            default=sd,
            metavar="SD",
            help=f"sd of a {name}, as 3, 3%% or 0.03 (default {100 * sd:g}%%)",
        )
    parser.add_argument(
        "--drift",
        type=share,
        default=DRIFT,
        metavar="SD",
        help=f"sd of a machine that wanders over minutes (default {100 * DRIFT:g}%%)",
    )
    parser.add_argument("--out", type=folder, help="a folder for the page and its pictures")
    return parser.parse_args(arguments)


def _settings(options: argparse.Namespace) -> str:
    words = [f"python -m pytest_llmperf.calibrate --seed {options.seed}"]
    words += ["--quick"] if options.quick else []
    for name in ("boot_sd", "session_sd", "turn_sd", "drift"):
        words.append(f"--{name.replace('_', '-')} {100 * getattr(options, name):g}%")
    return " ".join(words)


if __name__ == "__main__":
    sys.exit(main())
