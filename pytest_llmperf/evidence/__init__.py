"""The append-only files that a run leaves, and the views of measurements that are read from them.

What a record holds is in ``record``; what the records prove is in ``proof``.
"""

from pytest_llmperf.evidence.file import NAME, EvidenceWriter, read
from pytest_llmperf.evidence.pictures import keep_picture
from pytest_llmperf.evidence.schema import SCHEMA_FILE, schema_text
from pytest_llmperf.evidence.views import Evidence, Measured, in_order

__all__ = [
    "NAME",
    "SCHEMA_FILE",
    "Evidence",
    "EvidenceWriter",
    "Measured",
    "in_order",
    "keep_picture",
    "read",
    "schema_text",
]
