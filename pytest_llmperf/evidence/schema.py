"""The published JSON Schema of one line of evidence, generated from the records.

The records themselves are in ``record``; reading and writing lines is in ``file``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from pytest_llmperf import record

SCHEMA_FILE = Path(__file__).parents[1] / "schema" / f"evidence-{record.SCHEMA}.schema.json"
"""The published JSON Schema of one line."""

SEE_SCHEMA = (
    f"Each line must follow {SCHEMA_FILE.name}, "
    "printed by `python -m pytest_llmperf.evidence schema`."
)
"""The next step after a line that breaks the schema."""


def schema_text() -> str:
    """The JSON Schema as it is published: one line of evidence is one instance of it."""
    (root,), definitions = msgspec.json.schema_components(
        [record.Record], ref_template="#/$defs/{name}"
    )
    _require_number(definitions["Session"])
    whole = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"One line of pytest-llmperf evidence, schema {record.SCHEMA}",
        **root,
        "$defs": definitions,
    }
    return json.dumps(whole, indent=1) + "\n"


def _require_number(session: dict[str, Any]) -> None:
    """A session must state its schema's number, and it must be this one."""
    session["required"] = sorted({*session["required"], "schema"})
    session["properties"]["schema"] = {"const": record.SCHEMA}
