"""``python -m pytest_llmperf.evidence schema`` prints the JSON Schema of one line of evidence.

What it prints is made in ``schema``.
"""

from __future__ import annotations

import sys

from pytest_llmperf.evidence.schema import schema_text


def main(arguments: list[str]) -> int:
    """Print the schema; anything else asked for is a usage error (status 2)."""
    if arguments != ["schema"]:
        sys.stderr.write("usage: python -m pytest_llmperf.evidence schema\n")
        return 2
    sys.stdout.write(schema_text())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
