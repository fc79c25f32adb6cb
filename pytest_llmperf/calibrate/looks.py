"""Make the shipped look tables anew: ``python -m pytest_llmperf.calibrate.looks --seed N``.

How a table is simulated is in ``assumption.looks``; tests hold the shipped ones against another
seed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from pytest_llmperf.assumption.looks import LEVELS, SHIPPED, Design, Tables, calibrate, design_of

PATHS = 2_000_000

_MOST_BOOTS = 5


def designs() -> list[Design]:
    """Those whose tables are shipped; any other is simulated when it is first used."""
    usual = [design_of("pooled", screened=boots) for boots in range(1, _MOST_BOOTS + 1)]
    fewer = [
        each
        for pairs in (4, 5)
        for each in (
            design_of("paired", pairs=pairs),
            design_of("pooled", pairs=pairs),
            design_of("pooled", screened=3, pairs=pairs),
        )
    ]
    return [design_of("paired"), *usual, *fewer]


def main(arguments: Sequence[str] | None = None) -> int:
    """Simulate all designs and write their tables."""
    parser = argparse.ArgumentParser(prog="python -m pytest_llmperf.calibrate.looks")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--paths", type=int, default=PATHS)
    parser.add_argument("--out", type=Path, default=SHIPPED)
    options = parser.parse_args(arguments)
    seed, paths = options.seed, options.paths
    rising = {d.name: calibrate(d, "rising", seed=seed, paths=paths) for d in designs()}
    flat = {d.name: calibrate(d, "flat", seed=seed, paths=paths) for d in designs()}
    tables = Tables(seed, paths, LEVELS, rising, flat)
    options.out.write_bytes(msgspec.json.format(msgspec.json.encode(tables), indent=1) + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
