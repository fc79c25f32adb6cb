"""Public fakes for tests without an engine: a scripted server, records with known stamps, a clock.

No room of the plugin imports anything from here. The fakes simulate an engine's manners, never its
speed: a number measured against them says nothing of any model.

    from pytest_llmperf.client import Client
    from pytest_llmperf.testing import ScriptedServer, chat_stream

    with ScriptedServer([chat_stream(tokens=8, gap_s=0.0)]) as server:
        with Client(server.url, model=server.model) as client:
            ...
"""

from pytest_llmperf.testing.boots import a_boot
from pytest_llmperf.testing.clocks import TickingClock
from pytest_llmperf.testing.line import Received
from pytest_llmperf.testing.make_believe import Behaviour, Faults
from pytest_llmperf.testing.records import (
    a_measurement,
    a_request,
    a_session,
    an_engine,
    some_counters,
)
from pytest_llmperf.testing.scripts import (
    Answer,
    chat_stream,
    comment,
    done,
    event,
    raw,
    refusal,
    stream,
)
from pytest_llmperf.testing.server import ScriptedServer

__all__ = [
    "Answer",
    "Behaviour",
    "Faults",
    "Received",
    "ScriptedServer",
    "TickingClock",
    "a_boot",
    "a_measurement",
    "a_request",
    "a_session",
    "an_engine",
    "chat_stream",
    "comment",
    "done",
    "event",
    "raw",
    "refusal",
    "some_counters",
    "stream",
]
