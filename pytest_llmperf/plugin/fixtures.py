"""Pytest's fixtures: each a thin door to the session, the bench or the profile.

What they hand out lives in ``bench``, ``session`` and ``budget``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from pytest_llmperf.budget import Budget
from pytest_llmperf.errors import InvalidMeasurement, NotAttached
from pytest_llmperf.markers import Failover
from pytest_llmperf.plugin.keys import DECLARATION, GATE, SESSION, SETTINGS

if TYPE_CHECKING:
    from pytest_llmperf.bench import Bench, Lease
    from pytest_llmperf.session import Session

ENGINE_FIXTURES = {"gemma": True, "gemma_autoregressive": False}
"""The engine fixtures and whether each speculates."""


@pytest.fixture(scope="session")
def llmperf_session(request: pytest.FixtureRequest) -> Iterator[Session]:
    """The run's session: made when the first test asks, closed with the last one."""
    from pytest_llmperf.plugin.progress import Teller  # noqa: PLC0415 - loaded when a test asks
    from pytest_llmperf.session import LiveSession  # noqa: PLC0415 - likewise
    from pytest_llmperf.session.recorded import RecordedSession  # noqa: PLC0415 - likewise

    config = request.config
    settings = config.stash[SETTINGS]
    live = settings.replay is None
    session = LiveSession(settings, tell=Teller(config)) if live else RecordedSession(settings)
    config.stash[SESSION] = session
    yield session
    session.close()


@pytest.fixture(scope="session")
def llmperf_round(request: pytest.FixtureRequest, llmperf_session: Session) -> int:
    """Tell which boot of each engine this is, from 0; more than one in gate mode."""
    number: int = getattr(request, "param", 0)
    llmperf_session.begin_round(number)
    return number


@pytest.fixture
def llmperf(
    request: pytest.FixtureRequest, llmperf_session: Session, llmperf_round: int
) -> Iterator[Bench]:
    """Measure as the test's markers declare.

    ``run = llmperf(gemma, workload)``, or, with a speed-up declared,
    ``pair = llmperf.compare(gemma, gemma_autoregressive, workload)``. A test that also asks for
    ``benchmark`` finds its turns in pytest-benchmark's table.
    """
    from pytest_llmperf.bench import Bench  # noqa: PLC0415 - loaded when a test asks

    _refuse_workers(request.config)
    _refuse_reruns(request.node)
    gate = request.node.stash[GATE]
    gate.begin(llmperf_round)
    # Asked for here, so that it is still there when the test is over.
    viewed = "benchmark" in request.fixturenames
    benchmark = request.getfixturevalue("benchmark") if viewed else None
    bench = Bench(llmperf_session, request.node.stash[DECLARATION], gate)
    yield bench
    if benchmark is not None:
        from pytest_llmperf import benchmark_view  # noqa: PLC0415 - only where it is asked for

        benchmark_view.publish(benchmark, request.node, bench.runs, gate.word)


@pytest.fixture
def gemma(
    request: pytest.FixtureRequest,
    llmperf_session: Session,
    llmperf_round: int,  # noqa: ARG001 - every engine depends on the round
) -> Lease:
    """The profile's engine with its drafter and with prefix caching."""
    return _booted(request, llmperf_session, "gemma")


@pytest.fixture
def gemma_autoregressive(
    request: pytest.FixtureRequest,
    llmperf_session: Session,
    llmperf_round: int,  # noqa: ARG001 - likewise
) -> Lease:
    """The same engine without a drafter: one token a step."""
    return _booted(request, llmperf_session, "gemma_autoregressive")


@pytest.fixture
def engine(
    request: pytest.FixtureRequest,
    llmperf_session: Session,
    llmperf_round: int,  # noqa: ARG001 - likewise
) -> Callable[..., Lease]:
    """A factory of engines of your own: ``engine("short", speculation=True, flags={...})``.

    The name stands in every report; ``flags`` are laid over the profile's. One boot serves
    every test that asks for the same arguments.
    """

    def lease(name: str, *, speculation: bool = True, **overrides: Any) -> Lease:  # noqa: ANN401
        leased: Lease = _attached_or_skip(
            request, llmperf_session, name, speculation=speculation, **overrides
        )
        return leased

    return lease


@pytest.fixture
def budget(llmperf_session: Session) -> Callable[[str], Budget]:
    """Look up a limit of this machine: ``budget("cached_turn.p50")``, from the profile.

    Where the profile has none the assertion's row says so and is not judged.
    """
    return llmperf_session.profile.budget


def _booted(request: pytest.FixtureRequest, session: Session, name: str) -> Lease:
    """Lease an engine and have it up, together with the others the same test asks for."""
    wanted = [each for each in ENGINE_FIXTURES if each in request.fixturenames]
    leases = {
        each: _attached_or_skip(request, session, each, speculation=ENGINE_FIXTURES[each])
        for each in wanted
    }
    session.boot(list(leases.values()))
    lease: Lease = leases[name]
    return lease


def _attached_or_skip(
    request: pytest.FixtureRequest,
    session: Session,
    name: str,
    **arguments: Any,  # noqa: ANN401
) -> Any:  # noqa: ANN401
    from pytest_llmperf.session.taking_over import not_beside  # noqa: PLC0415 - when a test asks

    try:
        return session.lease(name, **arguments)
    except NotAttached as error:
        declared = request.node.stash.get(DECLARATION, None)
        is_failover = declared is not None and isinstance(declared.plan, Failover)
        attached = request.config.stash[SETTINGS].attach
        pytest.skip(str(not_beside(name, attached) if is_failover else error))


def _refuse_reruns(item: pytest.Item) -> None:
    """Running a gate again until it is green is looking until one likes what one sees."""
    run = getattr(item, "execution_count", 1)  # pytest-rerunfailures counts here
    if run > 1:
        raise InvalidMeasurement(
            "This gate was run again after it failed.",
            f"It is run number {run} in one session.",
            "Take gates out of --reruns; a suspect is confirmed on fresh boots in gate mode.",
        )


def _refuse_workers(config: pytest.Config) -> None:
    """Parallel workers share the machine that is measured."""
    if hasattr(config, "workerinput"):
        raise InvalidMeasurement(
            "This gate runs in a worker of pytest-xdist.",
            f"Worker {config.workerinput['workerid']} shares the machine with the others.",
            "Run it with -n0.",
        )
