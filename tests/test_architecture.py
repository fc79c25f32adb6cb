"""The house rules that a machine can hold: who may import whom, who may touch the outside."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

import pytest_llmperf

PACKAGE = Path(pytest_llmperf.__file__).parent
REPOSITORY = Path(__file__).parent.parent

LINES = (
    "errors units denominator fitness record",
    "markers declaration asserted settings budget place machine",
    "planned workload traffic plan load",
    "flags spec profile_check miniature profile",
    "stream server client counters failover",
    "evidence sample proof assumption verdict report",
    "gate run foresight selfcheck tails",
    "identity attribution benchmark_files history analysis",
    "suspects bench reference planning creeping benchmark_view rehearsal",
    "assertions shapes claims measure lease session",
    "plugin",
    "__init__ testing calibrate",
)
ORDER = " ".join(LINES).split()
"""A room imports only from rooms before it; data flows the same way."""

IMPORT_FENCES = {
    "pytest": "benchmark_view plugin",
    "_pytest": "plugin.outcome",
    "scipy": "assumption",
    "httpx": "client",
    "prometheus_client": "counters",
    "psutil": "server place",
    "subprocess": "server",
    "socket": "server",
    "sqlite3": "history",
    "fcntl": "history machine",
    "time": "server client session plugin.progress miniature.train",
    "pytest_llmperf.testing": "testing",
    "perf_suites": "",
    "hypothesis": "shapes",
    "vllm": "",
}
"""What only these rooms may import at run time."""

WRITERS = "evidence server miniature history calibrate plugin.outcome machine"
"""The only rooms that write files."""

CLOSED = "server: errors spec record server miniature"
"""The server room is usable without the rest, and knows nothing of pytest or of measuring."""

NO_DRAWERS = {"utils", "util", "helpers", "common", "base", "types", "constants", "misc"}
LONGEST_FUNCTION = 59
LONGEST_OF_NINE_IN_TEN = 40
LATE = {"scipy", "httpx", "prometheus_client", "psutil", "numpy", "vllm", "torch", "transformers"}


def modules() -> dict[str, ast.Module]:
    """Every module of the package by dotted name below it, parsed."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        name = ".".join(parts[:-1] if len(parts) > 1 and parts[-1] == "__init__" else parts)
        found[name] = ast.parse(path.read_text(encoding="utf-8"))
    return found


MODULES = modules()


def room(module: str) -> str:
    return module.split(".", maxsplit=1)[0]


def is_for_types_only(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)


def at_run_time(node: ast.AST) -> Iterator[ast.AST]:
    """Every node below, without what stands under ``if TYPE_CHECKING``."""
    for child in ast.iter_child_nodes(node):
        if not is_for_types_only(child):
            yield child
            yield from at_run_time(child)


@cache
def imported(tree: ast.Module) -> set[str]:
    """Dotted names that a module imports at run time; ``from a import b`` gives ``a.b``."""
    names: set[str] = set()
    for node in at_run_time(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def rooms_imported(tree: ast.Module) -> set[str]:
    ours = {name.split(".")[1] for name in imported(tree) if name.startswith("pytest_llmperf.")}
    return ours & set(ORDER)


def is_within(name: str, top: str) -> bool:
    return name == top or name.startswith(f"{top}.")


def functions() -> dict[str, int]:
    """Every function's length in lines, by name."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {
        f"{module}:{node.lineno} {node.name}": (node.end_lineno or node.lineno) - node.lineno + 1
        for module, tree in MODULES.items()
        for node in ast.walk(tree)
        if isinstance(node, kinds)
    }


def writes(node: ast.AST) -> bool:
    """Whether a call opens or makes a file to write."""
    if not isinstance(node, ast.Call):
        return False
    called = node.func.attr if isinstance(node.func, ast.Attribute) else ""
    if called in {"write_text", "write_bytes", "mkdir", "touch"}:
        return True
    is_open = called == "open" or (isinstance(node.func, ast.Name) and node.func.id == "open")
    words = [each.value for each in ast.walk(node) if isinstance(each, ast.Constant)]
    modes = {word for word in words if isinstance(word, str) and len(word) <= len("rb+t")}
    return is_open and any(set("wax+") & set(mode) for mode in modes)


def offenders(
    is_allowed: Callable[[str], bool], offends: Callable[[ast.Module], bool]
) -> list[str]:
    return [name for name, tree in MODULES.items() if offends(tree) and not is_allowed(name)]


def test_every_room_has_its_place_in_the_order() -> None:
    assert {room(name) for name in MODULES} - set(ORDER) == set()


@pytest.mark.parametrize("name", sorted(MODULES))
def test_a_room_imports_only_from_rooms_before_it(name: str) -> None:
    mine = room(name)
    before = {*ORDER[: ORDER.index(mine)], mine} if mine in ORDER else set()
    assert rooms_imported(MODULES[name]) - before == set()


@pytest.mark.parametrize("outside", sorted(IMPORT_FENCES))
def test_only_its_own_rooms_import(outside: str) -> None:
    allowed = IMPORT_FENCES[outside].split()
    assert (
        offenders(
            lambda name: any(is_within(name, each) for each in allowed),
            lambda tree: any(is_within(name, outside) for name in imported(tree)),
        )
        == []
    )


def test_only_these_rooms_write_files() -> None:
    assert (
        offenders(
            lambda name: any(is_within(name, each) for each in WRITERS.split()),
            lambda tree: any(writes(node) for node in ast.walk(tree)),
        )
        == []
    )


def test_the_server_room_stands_alone() -> None:
    closed, allowed = CLOSED.split(":")
    used = [rooms_imported(tree) for name, tree in MODULES.items() if room(name) == closed]
    assert set().union(*used) - set(allowed.split()) == set()


def test_what_is_imported_late_is_there() -> None:
    """A name that is imported inside a function is missed by no import of the module."""
    names = {
        (node.module, alias.name)
        for tree in MODULES.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pytest_llmperf")
        for alias in node.names
    }
    missing = [
        f"{module}.{name}"
        for module, name in sorted(names, key=str)
        if not hasattr(importlib.import_module(str(module)), name)
        and find_spec(f"{module}.{name}") is None
    ]
    assert missing == []


def test_no_room_is_a_drawer() -> None:
    assert [name for name in MODULES if NO_DRAWERS & set(name.split("."))] == []


def test_every_module_says_what_belongs_in_it() -> None:
    assert [
        name for name, tree in MODULES.items() if tree.body and not ast.get_docstring(tree)
    ] == []


def test_no_function_is_long() -> None:
    too_long = {name: lines for name, lines in functions().items() if lines > LONGEST_FUNCTION}
    assert too_long == {}


def test_nine_functions_in_ten_are_short() -> None:
    lengths = functions().values()
    short = sum(lines < LONGEST_OF_NINE_IN_TEN for lines in lengths)
    assert short >= 0.9 * len(lengths)


def test_a_plain_pytest_run_pays_for_nothing_heavy() -> None:
    probe = (
        "import sys, pytest_llmperf.plugin; print(*sorted({m.split('.')[0] for m in sys.modules}))"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, text=True, check=True
    )
    assert LATE & set(loaded.stdout.split()) == set()


def test_the_documented_order_is_the_one_that_is_kept() -> None:
    page = (REPOSITORY / "docs" / "architecture.md").read_text(encoding="utf-8")
    listed = page.split("<!-- order -->")[1].split("```")[1].removeprefix("text").split()
    assert listed == [each for each in ORDER if each != "__init__"]
