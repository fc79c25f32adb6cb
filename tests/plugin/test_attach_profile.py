"""Servers that a profile names: attached in its order, with its budgets, and taken as found."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from pytest_llmperf import profile
from pytest_llmperf.errors import UsageError
from pytest_llmperf.evidence import read
from pytest_llmperf.testing import ScriptedServer, metrics_page

SUITE = """
import pytest
from pytest_llmperf import assert_latency

@pytest.mark.cached_turn(turns=8, warmup=1)
def test_turns(llmperf, gemma, talks, budget):
    assert_latency(llmperf(gemma, talks), p50_s=budget("turns.p50"))
"""


def test_a_server_is_measured_that_only_the_profile_names(
    suite: pytest.Pytester, healthy: ScriptedServer
) -> None:
    suite.makepyfile(test_suite=SUITE)
    lines = f"extends = 'attach'\n[attach]\ngemma = '{healthy.url}'\n[budgets.turns]\np50 = 60\n"
    suite.makefile(".toml", here=lines)
    result = suite.runpytest_inprocess("-p", "no:cacheprovider", "--llmperf-profile=here.toml")
    result.stdout.fnmatch_lines([f"llmperf: attached: gemma at {healthy.url}; *"])
    assert result.ret == 0


def test_the_attach_profile_alone_names_nothing_and_is_refused(suite: pytest.Pytester) -> None:
    suite.makepyfile(test_suite=SUITE)
    result = suite.runpytest_inprocess("-p", "no:cacheprovider", "--llmperf-profile=attach")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        [
            "*The profile 'attach' names no server.",
            "It takes servers as they are found, and its [[]attach[]] is empty.",
            "Extend it and name them under [[]attach[]], or give --llmperf-attach URL.",
        ]
    )


def test_servers_keep_their_order(tmp_path: Path) -> None:
    path = tmp_path / "two.toml"
    lines = "extends = 'attach'\n[attach]\nz = 'http://one:1'\na = 'http://two:2'\n"
    path.write_text(lines, encoding="utf-8")
    assert list(profile.load(path).attach) == ["z", "a"]


def test_what_is_no_address_is_a_fault_of_the_profile(tmp_path: Path) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text("extends = 'attach'\n[attach]\ngemma = 'here:1'\n", encoding="utf-8")
    with pytest.raises(UsageError, match=r"gemma = 'here:1' is not an address as http://host:port"):
        profile.load(path)


@pytest.fixture
def page_elsewhere(healthy: ScriptedServer) -> Iterator[str]:
    """The healthy server's counters at another address; at its own it has none."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            text = metrics_page.page(healthy._engine, started_at=healthy.started_at)
            self.send_response(200 if self.path == "/metrics" else 404)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
            """Nothing: it is no part of what is tested."""

    healthy.faults.no_metrics = True
    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def served_as(address: str) -> str:
    return f"extends = 'attach'\n[attach]\ngemma = {address}\n[budgets.turns]\np50 = 60\n"


def test_counters_are_read_where_the_profile_says_that_they_are(
    suite: pytest.Pytester, healthy: ScriptedServer, page_elsewhere: str
) -> None:
    suite.makepyfile(test_suite=SUITE)
    both = f"{{ url = '{healthy.url}', metrics = '{page_elsewhere}' }}"
    suite.makefile(".toml", here=served_as(both))
    found = suite.runpytest_inprocess(
        "-p", "no:cacheprovider", "--llmperf-profile=here.toml", "--llmperf-evidence=recorded"
    )
    assert found.ret == 0
    assert "drafts not measured" not in found.stdout.str()
    (engine,) = read(suite.path / "recorded").engines.values()
    assert engine.metrics_url == f"{page_elsewhere}/metrics"
    suite.makefile(".toml", bare=served_as(f"'{healthy.url}'"))
    bare = suite.runpytest_inprocess("-p", "no:cacheprovider", "--llmperf-profile=bare.toml")
    assert bare.ret == 11
    assert "gives no block size; nothing was sent" in " ".join(bare.stdout.str().split())


def test_a_metrics_page_that_is_not_there_is_named(
    suite: pytest.Pytester, healthy: ScriptedServer, page_elsewhere: str
) -> None:
    suite.makepyfile(test_suite=SUITE)
    wrong = f"{page_elsewhere}/elsewhere"
    suite.makefile(".toml", here=served_as(f"{{ url = '{healthy.url}', metrics = '{wrong}' }}"))
    result = suite.runpytest_inprocess("-p", "no:cacheprovider", "--llmperf-profile=here.toml")
    assert result.ret == 11
    told = " ".join(" ".join(result.outlines).split())
    assert f"Engine gemma cannot be attached: its metrics page {wrong} cannot be read." in told
    assert "It says HTTP 404." in told
    assert "Correct metrics of gemma under [attach] in the profile, or leave it out" in told


@pytest.mark.parametrize(
    ("server", "fault"),
    [
        ("{ metrics = 'http://a:1' }", "gemma has no url"),
        ("{ url = 'http://a:1', metrics = 'b:2' }", "metrics = 'b:2' is not an address"),
        ("{ url = 3 }", "url = 3 is not an address"),
        ("{ url = 'http://a:1', page = 'http://b:2' }", "page is not known"),
    ],
)
def test_an_attached_server_has_an_address_and_perhaps_a_page(
    tmp_path: Path, server: str, fault: str
) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(served_as(server), encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        profile.load(path)
    assert fault in str(caught.value)
