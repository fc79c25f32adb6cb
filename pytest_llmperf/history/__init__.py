"""Past sessions of a place: evidence folders, decisions about them, and an index over both.

Evidence is the truth and the index can be built again from it. Statistics on past numbers are in
``assumption``; what a difference of identity means is in ``identity``.
"""

from pytest_llmperf.history.admission import Admission, Rules
from pytest_llmperf.history.decisions import Decision
from pytest_llmperf.history.derive import MEAN, RATIO, Boot
from pytest_llmperf.history.past import Anchor, PastSession, Standing
from pytest_llmperf.history.store import History

FOLDER = ".llmperf-history"
"""Where a history is unless another folder is named; not below ``.llmperf``, whose evidence is
replayed as a whole."""

__all__ = [
    "FOLDER",
    "MEAN",
    "RATIO",
    "Admission",
    "Anchor",
    "Boot",
    "Decision",
    "History",
    "PastSession",
    "Rules",
    "Standing",
]
