"""Names are looked up once, timed apart from connecting, and pinned to what takes connections."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from pytest_llmperf import record
from pytest_llmperf.analysis.handover import Switch
from pytest_llmperf.analysis.handover.proven import findings
from pytest_llmperf.denominator import FAILOVER
from pytest_llmperf.evidence import Measured
from pytest_llmperf.failover.names import pin
from pytest_llmperf.testing import TickingClock, a_measurement, a_request
from tests.failover.conftest import arm

START = record.Endpoint(measurement_id="m0", boot_id="b0", place=0, url="http://spark.local:8000")


def pinned(
    addresses: Sequence[str] | OSError,
    *,
    lookup_s: float = 0.0,
    dead: Sequence[str] = (),
    url: str = START.url,
) -> record.Endpoint:
    clock = TickingClock(step_ns=0)

    async def lookup(host: str, port: int) -> Sequence[str]:
        assert (host, port) == ("spark.local", 8000)
        clock.advance(lookup_s)
        if isinstance(addresses, OSError):
            raise addresses
        return addresses

    async def connect(address: str, port: int) -> None:
        assert port == 8000
        if address in dead:
            clock.advance(5.0)
            raise TimeoutError
        clock.advance(0.01)

    start = msgspec.structs.replace(START, url=url)
    return asyncio.run(pin(start, clock=clock, lookup=lookup, connect=connect))


def test_a_name_is_pinned_to_its_first_address() -> None:
    found = pinned(["10.0.0.2", "10.0.0.3"], lookup_s=0.2)
    assert (found.pinned, found.lookup_ns, found.connect_ns) == (
        "10.0.0.2",
        200_000_000,
        10_000_000,
    )
    assert found.problem is None


def test_a_dead_address_costs_once_and_is_told() -> None:  # F9
    found = pinned(["fe80::1", "10.0.0.2"], dead=["fe80::1"])
    assert found.pinned == "10.0.0.2"
    assert found.connect_ns == 5_010_000_000
    assert found.problem == "fe80::1: no connection in time"


def test_a_name_of_which_no_address_answers_is_pinned_to_none() -> None:
    found = pinned(["10.0.0.2"], dead=["10.0.0.2"])
    assert found.pinned is None
    assert found.problem == "10.0.0.2: no connection in time"


def test_an_unknown_name_is_told() -> None:
    found = pinned(OSError("Name or service not known"))
    assert found.problem == "spark.local is not known: Name or service not known"


def test_an_address_is_not_looked_up() -> None:
    found = pinned(OSError("never asked"), url="http://10.0.0.2:8000")
    assert (found.lookup_ns, found.pinned) == (None, "10.0.0.2")


def switch(**endpoint: object) -> Switch:
    first, following = (
        Measured(
            measurement=a_measurement(),
            arm=arm(place),
            requests=(a_request(request_id=f"r{place}", boot_id=f"b{place}", first_s=0.5),),
            endpoint=msgspec.structs.replace(START, boot_id=f"b{place}", **endpoint),
        )
        for place in range(2)
    )
    assert first.arm.denominator == FAILOVER
    return Switch([first, following])


def test_a_look_up_above_a_tenth_of_the_first_token_is_told() -> None:  # F9
    texts = findings(switch(lookup_ns=30_000_000_000, connect_ns=1_000_000))
    assert texts[0] == (
        "anton: looking up its name took 30.0 s, 6,000 % of the median time to its first token; it "
        "was done once, before the load."
    )
    assert not any("connecting" in each for each in texts)


def test_a_quick_look_up_is_not() -> None:
    texts = findings(switch(lookup_ns=40_000_000, connect_ns=40_000_000))
    assert not any("took" in each for each in texts)
