"""What the documents say is what the code does: commands, tables, links and planted faults."""

from __future__ import annotations

import ast
import configparser
import re
import runpy
import shlex
import tomllib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_args

import jsonschema
import msgspec
import pytest

import pytest_llmperf
from pytest_llmperf import plugin, profile, proof, record, verdict
from pytest_llmperf.claims.published import Claim
from pytest_llmperf.denominator import BUILT_IN
from pytest_llmperf.evidence import read, schema_text
from pytest_llmperf.history.__main__ import main as history
from pytest_llmperf.markers import MARKERS, Plan
from pytest_llmperf.plugin import options
from pytest_llmperf.run import Run
from pytest_llmperf.settings import Mode

REPOSITORY = Path(__file__).parent.parent
PAGES = [
    *REPOSITORY.glob("*.md"),
    *REPOSITORY.glob("docs/**/*.md"),
    *REPOSITORY.glob("perf_suites/**/*.md"),
]
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
CI = (REPOSITORY / ".ci" / "run").read_text(encoding="utf-8")
FAULTS = REPOSITORY / "perf_suites" / "faults"
GATE_IN_CI = REPOSITORY / "docs" / "how-to" / "gate-in-ci.md"
OWN_SUITE = REPOSITORY / "docs" / "how-to" / "your-own-suite.md"
COMMAND = re.compile(r"python -m (pytest_llmperf[\w.]*)(.*?)(?:`|$)", re.MULTILINE)


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


def faults() -> dict[str, dict[str, Any]]:
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
    "text",
    [
        README,
        (REPOSITORY / "docs/concepts/verdicts.md").read_text(encoding="utf-8"),
        GATE_IN_CI.read_text(encoding="utf-8"),
    ],
    ids=["README", "verdicts", "gate-in-ci"],
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


@pytest.mark.parametrize("said", ["denominator", "**How long.**", "## How to read it"])
def test_every_suite_has_a_page_that_says(said: str) -> None:
    for path in (REPOSITORY / "perf_suites").glob("test_*.py"):
        page = REPOSITORY / "docs" / "suites" / f"{path.stem.removeprefix('test_')}.md"
        assert said in page.read_text(encoding="utf-8"), page


def test_every_suite_has_a_planted_fault() -> None:
    planted = {row["select"][0] for row in faults().values()}
    suites = (REPOSITORY / "perf_suites").glob("test_*.py")
    assert {f"perf_suites/{path.name}" for path in suites} - planted == set()


def test_every_suite_is_listed_with_its_question() -> None:
    text = (REPOSITORY / "perf_suites" / "README.md").read_text(encoding="utf-8")
    suites = {path.name: path for path in (REPOSITORY / "perf_suites").glob("test_*.py")}
    questions = {
        name: (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").splitlines()[0]
        for name, path in suites.items()
    }
    listed = dict(re.findall(r"^\| \[`(test_\w+\.py)`\]\(\S+\) \| (.+?) \|", text, re.MULTILINE))
    assert listed == questions


def first_cells(page: Path, heading: str) -> list[str]:
    """The words in code that begin the rows under a heading."""
    text = page.read_text(encoding="utf-8").split(f"\n{heading}\n", 1)[1]
    return re.findall(
        r"^\| `(\w+)[^|]*\|", re.split(r"^#+ ", text, flags=re.MULTILINE)[0], re.MULTILINE
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_every_option_that_is_named_exists(page: Path) -> None:
    named = set(re.findall(r"--llmperf-[a-z]+(?:-[a-z]+)*", page.read_text(encoding="utf-8")))
    parser = pytest.Parser(_ispytest=True)
    options.add(parser)
    known = {name for group in parser._groups for each in group.options for name in each.names()}
    assert named - known == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_every_module_that_is_called_exists(page: Path) -> None:
    called = {module for module, _ in COMMAND.findall(page.read_text(encoding="utf-8"))}
    assert {module for module in called if find_spec(module) is None} == set()


def test_every_command_of_a_history_is_understood(tmp_path: Path) -> None:
    calls = COMMAND.findall(GATE_IN_CI.read_text(encoding="utf-8"))
    assert len(calls) > 4
    for _, arguments in calls:  # argparse leaves with SystemExit where it does not understand
        assert history(["--history", str(tmp_path), *shlex.split(arguments)], str) in (0, 1)


def test_the_modes_are_the_code_s() -> None:
    assert tuple(first_cells(GATE_IN_CI, "## Modes")) == get_args(Mode)


def test_the_script_s_variables_are_those_it_reads() -> None:
    script = (REPOSITORY / ".ci" / "gate").read_text(encoding="utf-8")
    named = first_cells(GATE_IN_CI, "## The script")
    assert set(named) == set(re.findall(r"LLMPERF_[A-Z_]+", script))


def test_the_figures_of_the_statistics_are_those_of_the_calibration() -> None:
    page = (REPOSITORY / "docs" / "concepts" / "statistics.md").read_text(encoding="utf-8")
    made = (REPOSITORY / "docs" / "calibration" / "README.md").read_text(encoding="utf-8")
    base = "".join(
        part for part in re.split(r"^###? ", made, flags=re.MULTILINE) if part[:5] == "base\n"
    )
    quoted = [
        line.removeprefix("> ")
        for part in re.findall(r"<!-- calibrated:.*?-->(.*?)<!-- /calibrated", page, re.DOTALL)
        for line in part.strip().splitlines()
        if line
    ]
    assert len(quoted) > 15
    assert [line for line in quoted if line not in base.splitlines()] == []


def test_the_table_of_markers_is_the_code_s() -> None:
    shared = {field.encode_name: field.default for field in msgspec.structs.fields(Plan)}
    rows = ["| marker | must say | may say | what it declares |", "|---|---|---|---|"]
    for name, kind in MARKERS.items():
        fields = {each.encode_name: each for each in msgspec.structs.fields(kind)}
        own = {
            key: each
            for key, each in fields.items()
            if key not in shared or each.default != shared[key]
        }
        must = ", ".join(f"`{key}`" for key, each in own.items() if each.required)
        may = ", ".join(
            f"`{key}={each.default!r}`" for key, each in own.items() if not each.required
        )
        rows.append(f"| `{name}` | {must} | {may} | {(kind.__doc__ or '').strip()} |")
    page = OWN_SUITE.read_text(encoding="utf-8")
    assert between(page, "markers:", "/markers").strip().splitlines() == rows


def test_the_table_of_a_plan_s_keywords_is_the_code_s() -> None:
    listed = re.findall(
        r"^\| `(\w+)` \| `(.+?)` \|",
        between(OWN_SUITE.read_text(encoding="utf-8"), "plan:", "/plan"),
        re.MULTILINE,
    )
    fields = msgspec.structs.fields(Plan)
    assert listed == [(each.name, repr(each.default)) for each in fields]


def test_the_fixtures_and_assertions_are_the_code_s() -> None:
    inner = {"llmperf_round", "llmperf_session"}
    assert set(first_cells(OWN_SUITE, "## Fixtures")) == set(plugin.__all__) - inner
    asserted = {name for name in pytest_llmperf.__all__ if name.startswith("assert_")}
    assert set(first_cells(OWN_SUITE, "## Assertions")) == asserted


def test_the_table_of_records_is_the_code_s() -> None:
    tags = {kind.__struct_config__.tag for kind in get_args(record.Record)}
    assert set(first_cells(OWN_SUITE, "## Evidence")) == tags


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_every_profile_that_is_shown_can_be_read(page: Path, tmp_path: Path) -> None:
    for number, block in enumerate(code_blocks(page, "toml")):
        if "[denominator]" in block:
            assert Claim.of("shown", tomllib.loads(block)).counted_by is not None
            continue
        shown = tmp_path / f"shown{number}.toml"
        shown.write_text(block, encoding="utf-8")
        assert profile.load(shown).name == shown.stem


@pytest.fixture
def made_elsewhere(tmp_path: Path) -> Path:
    (lines,) = code_blocks(OWN_SUITE, "jsonl")
    (tmp_path / "evidence.jsonl").write_text(lines, encoding="utf-8")
    return tmp_path


def test_evidence_made_elsewhere_follows_the_schema(made_elsewhere: Path) -> None:
    validator = jsonschema.Draft202012Validator(msgspec.json.decode(schema_text()))
    for line in (made_elsewhere / "evidence.jsonl").read_text(encoding="utf-8").splitlines():
        validator.validate(msgspec.json.decode(line))


def test_evidence_made_elsewhere_is_read_and_proves_what_it_declares(made_elsewhere: Path) -> None:
    (arm,) = read(made_elsewhere).measured("m1")
    assert proof.contradictions(arm) == ()
    assert Run([arm]).values == ((0.182, 0.179),)


def test_the_example_judges_it_as_the_page_says(
    made_elsewhere: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    example = next(each for each in code_blocks(OWN_SUITE, "python") if "evidence.jsonl" in each)
    (made_elsewhere / "example.py").write_text(example, encoding="utf-8")
    monkeypatch.chdir(made_elsewhere)
    runpy.run_path("example.py")
    said = capsys.readouterr().out
    assert said.startswith("2 of 2 turns cold")
    assert said.endswith("INCONCLUSIVE\n")
