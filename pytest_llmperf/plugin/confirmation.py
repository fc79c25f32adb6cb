"""The item that follows a gate against the past, and judges it on fresh boots when suspected.

How it is judged is in ``suspects``. The first of these items measures for all suspects together,
since what each may claim depends on how many there are.
"""

from __future__ import annotations

from typing import Any

import pytest

from pytest_llmperf.gate import Gate
from pytest_llmperf.plugin.keys import GATE, SESSION

ASSERTION = "assert_no_regression"
"""A test function that names this gets an item of its own for the confirmation."""


class ConfirmItem(pytest.Item):
    """Passes where its gate was not suspected, or where the suspicion is excluded."""

    def __init__(self, *, gate: Gate, **arguments: Any) -> None:  # noqa: ANN401 - pytest's own
        super().__init__(**arguments)
        self.stash[GATE] = gate
        gate.has_confirmation = True

    def runtest(self) -> None:
        """Measure what is suspected, then raise what came of this gate."""
        from pytest_llmperf.assertions import error_of  # noqa: PLC0415 - loaded when it is run

        gate = self.stash[GATE]
        session = self.config.stash.get(SESSION, None)
        if session is None or not gate.is_pending:
            pytest.skip("not suspected")
        session.confirm()
        gate.is_pending = False
        for row in gate.rows:
            error = error_of(row)
            if error is not None:
                raise error

    def reportinfo(self) -> tuple[Any, int | None, str]:
        """Say where it comes from."""
        return self.path, None, self.name


def confirm_item(item: pytest.Function, gate: Gate) -> ConfirmItem | None:
    """Give a gate's confirmation, where its test asserts against the past."""
    code = getattr(item.function, "__code__", None)
    if code is None or ASSERTION not in code.co_names:
        return None
    parent = item.parent
    assert parent is not None  # noqa: S101 - a test function stands in a module
    name = f"{gate.node_id.rpartition('::')[2]}::confirm"
    made: ConfirmItem = ConfirmItem.from_parent(parent, name=name, gate=gate)
    made.own_markers = list(item.own_markers)
    made.keywords.update(item.keywords)
    return made
