"""What the documents say is what the code does: commands, tables, links and planted faults."""

from __future__ import annotations

import ast
import configparser
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_llmperf import profile, verdict
from pytest_llmperf.declaration import MARKERS
from pytest_llmperf.denominator import BUILT_IN

REPOSITORY = Path(__file__).parent.parent
PAGES = [
    *REPOSITORY.glob("*.md"),
    *REPOSITORY.glob("docs/**/*.md"),
    *REPOSITORY.glob("perf_suites/**/*.md"),
]
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
CI = (REPOSITORY / ".ci" / "run").read_text(encoding="utf-8")
FAULTS = REPOSITORY / "perf_suites" / "faults"


def environments() -> set[str]:
    tox = configparser.ConfigParser(interpolation=None)
    tox.read(REPOSITORY / "tox.ini", encoding="utf-8")
    return {name.removeprefix("testenv:") for name in tox.sections() if name.startswith("testenv:")}


def set_up_lines(text: str) -> list[str]:
    """The commands that do all set-up in one line."""
    return [line for line in text.splitlines() if line.startswith("python3.11 -m venv .venv && ")]


def environments_named(text: str) -> set[str]:
    named = re.findall(r"tox run (?:-qq )?-e ([a-z,-]+)", text)
    return {name for each in named for name in each.split(",")}


def between(text: str, opening: str, closing: str) -> str:
    return text.split(f"<!-- {opening}", 1)[1].split("-->", 1)[1].split(f"<!-- {closing}", 1)[0]


def faults() -> dict[str, dict[str, str | int]]:
    return tomllib.loads((FAULTS / "expected.toml").read_text(encoding="utf-8"))


def what(name: str) -> str:
    """A fault in words: its profile's description, or its own."""
    planted = FAULTS / f"{name}.toml"
    if planted.exists():
        return str(tomllib.loads(planted.read_text(encoding="utf-8"))["description"])
    return str(faults()[name]["what"])


def code_blocks(page: Path, language: str) -> Iterator[str]:
    yield from re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


def test_the_readme_has_two_commands_that_do_all_set_up() -> None:
    assert [environments_named(line) for line in set_up_lines(README)] == [{"perf"}, {"tests"}]


def test_continuous_integration_calls_both_commands_of_the_readme_word_for_word() -> None:
    assert set(set_up_lines(README)) <= set(CI.splitlines())


@pytest.mark.parametrize("page", [*PAGES, REPOSITORY / ".ci" / "run"], ids=lambda page: page.name)
def test_every_environment_that_is_named_exists(page: Path) -> None:
    assert environments_named(page.read_text(encoding="utf-8")) - environments() == set()


def test_contributors_are_told_of_every_environment() -> None:
    text = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `([a-z-]+)` \|", text, re.MULTILINE)) == environments()


def test_one_version_of_tox_is_pinned_everywhere() -> None:
    texts = [page.read_text(encoding="utf-8") for page in (*PAGES, REPOSITORY / "tox.ini")]
    pinned = {version for text in [*texts, CI] for version in re.findall(r"tox==([\d.]+)", text)}
    assert len(pinned) == 1


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_every_link_within_the_repository_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_every_example_in_python_can_be_read_and_marks_what_exists(page: Path) -> None:
    for block in code_blocks(page, "python"):
        marks = {
            node.attr
            for node in ast.walk(ast.parse(block))
            if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "pytest.mark"
        }
        assert marks <= {*MARKERS, "parametrize"}


def test_the_table_of_denominators_is_the_code_s() -> None:
    rows = ["| marker | what it is | formula | unit |", "|---|---|---|---|"]
    rows += [
        f"| `{name}` | {each.words} | `{each.formula}` | {each.unit_text} |"
        for name, each in BUILT_IN.items()
    ]
    page = (REPOSITORY / "docs" / "concepts" / "denominators.md").read_text(encoding="utf-8")
    assert between(page, "denominators:", "/denominators").strip().splitlines() == rows


@pytest.mark.parametrize(
    "text", [README, (REPOSITORY / "docs/concepts/verdicts.md").read_text(encoding="utf-8")]
)
def test_the_exit_codes_are_the_code_s(text: str) -> None:
    listed = re.findall(r"^\| (\d+) \| (.+) \|$", text, re.MULTILINE)
    codes = {int(code): words for code, words in listed}
    assert list(codes) == [
        0,
        verdict.EXIT_REGRESS,
        verdict.EXIT_INVALID,
        verdict.EXIT_FAILED,
        verdict.EXIT_INCONCLUSIVE,
        verdict.EXIT_NONE_JUDGED,
    ]
    assert "`REGRESS`" in codes[verdict.EXIT_REGRESS]
    assert "`INVALID`" in codes[verdict.EXIT_INVALID]
    assert "`INCONCLUSIVE`" in codes[verdict.EXIT_INCONCLUSIVE]


def test_the_four_words_are_listed_in_their_order() -> None:
    assert tuple(re.findall(r"^\| `([A-Z]+)` \|", README, re.MULTILINE)) == verdict.WORDS


@pytest.mark.parametrize("name", sorted(path.stem for path in FAULTS.glob("*.toml")))
def test_every_profile_among_the_faults_is_expected_to_come_to_something(name: str) -> None:
    assert name == "expected" or faults()[name]["plant"] == "profile"


@pytest.mark.parametrize("name", [n for n, row in faults().items() if row["plant"] == "profile"])
def test_every_planted_profile_can_be_read(name: str) -> None:
    assert profile.load(FAULTS / f"{name}.toml").name == name


def test_the_table_of_faults_is_the_data_s() -> None:
    text = (FAULTS / "README.md").read_text(encoding="utf-8")
    rows = [f"| `{name}` | {what(name)} | {row['exit_code']} |" for name, row in faults().items()]
    assert [line for line in text.splitlines() if line.startswith("| `")] == rows


def test_every_suite_is_listed_with_its_question() -> None:
    text = (REPOSITORY / "perf_suites" / "README.md").read_text(encoding="utf-8")
    suites = {path.name: path for path in (REPOSITORY / "perf_suites").glob("test_*.py")}
    questions = {
        name: (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").splitlines()[0]
        for name, path in suites.items()
    }
    listed = dict(re.findall(r"^\| `(test_\w+\.py)` \| (.+?) \|", text, re.MULTILINE))
    assert listed == questions
