"""Tells where the miniature is: ``python -m pytest_llmperf.miniature [--layers N] [--mlp N]``.

It checks the shipped weights and builds what is asked for; everything else is done by its room.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from pytest_llmperf.miniature.checkpoint import materialise


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the folders of a checkpoint, after every step that it took to have them."""
    parser = argparse.ArgumentParser(
        prog="python -m pytest_llmperf.miniature", description="Check and build the miniature."
    )
    parser.add_argument("--layers", type=int, default=0, help="dead layers to put in front")
    parser.add_argument("--mlp", type=int, default=0, help="dead neurons to add to every layer")
    parser.add_argument("--cache", type=Path, default=None, help="folder of built checkpoints")
    asked = parser.parse_args(arguments)
    built = materialise(layers=asked.layers, mlp=asked.mlp, cache_dir=asked.cache, progress=print)
    for name in ("target", "drafter", "drafter_weak", "digest"):
        print(f"{name}: {getattr(built, name)}")  # noqa: T201  # the command's answer


if __name__ == "__main__":
    main()
