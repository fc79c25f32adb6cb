"""Pictures beside the evidence: drawn from it, so that one may be drawn again over another.

What they show is drawn in ``picture``; the evidence itself is in ``file``.
"""

from __future__ import annotations

import re
from pathlib import Path

from pytest_llmperf.errors import EvidenceError


def keep_picture(folder: Path, gate: str, name: str, drawn: str) -> Path:
    """Write SVG text to ``folder/pictures/TEST-NAME.svg`` and give its path.

    :raises EvidenceError: the disk refuses it; the evidence itself is not touched.
    """
    test = re.sub(r"\W+", "-", gate.rpartition("::")[2]).strip("-")
    path = folder / "pictures" / f"{test}-{name}.svg"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(drawn, encoding="utf-8")
    except OSError as error:
        raise EvidenceError(
            f"The picture {path} could not be written.",
            f"The system says: {error.strerror or error}.",
            "Free space on that disk; the evidence is whole and can be replayed.",
        ) from error
    return path
