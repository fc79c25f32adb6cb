from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmperf import profile, spec
from pytest_llmperf.errors import UsageError
from pytest_llmperf.profile_check import faults
from pytest_llmperf.record import Declared

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a profile; its path."""

    def one(text: str, name: str = "mine.toml") -> Path:
        path = tmp_path / name
        path.write_text(text)
        return path

    return one


def fault(path: Path) -> UsageError:
    with pytest.raises(UsageError) as wrong:
        profile.load(path)
    return wrong.value


def flags_of(engine: spec.EngineSpec) -> dict[str, str]:
    """Each flag and what follows it, if that is no flag."""
    words = [*engine.arguments, "--"]
    return {
        word: "" if after.startswith("--") else after
        for word, after in itertools.pairwise(words)
        if word.startswith("--")
    }


SHIPPED = [
    "attach",
    "gemma-4-e4b",
    "miniature",
    "miniature-heavy",
    "nemotron",
    "spark",
    "spark-fp8",
    "spark-nvfp4",
]


def test_the_shipped_profiles_are_these() -> None:
    assert profile.shipped() == SHIPPED


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_profile_is_valid_described_without_budgets_and_without_warnings(
    name: str,
) -> None:
    shipped = profile.load(name)
    assert shipped.description
    assert shipped.budgets == {}
    assert shipped.engine("gemma", speculation=True).warnings == ()


@pytest.mark.parametrize(
    "name", [each for each in SHIPPED if not each.startswith(("miniature", "attach"))]
)
def test_on_the_spark_one_engine_lives_at_a_bounded_share_and_nothing_is_claimed(name: str) -> None:
    shipped = profile.load(name)
    flags = flags_of(shipped.engine("gemma", speculation=True))
    assert shipped.resident == 1
    assert 0.80 <= float(flags["--gpu-memory-utilization"]) <= 0.85
    assert flags["--max-num-seqs"] == "8"
    assert shipped.serving.boot_cap_s >= 15 * 60
    assert "measured" in shipped.description


def test_the_miniature_is_what_was_found_to_work() -> None:
    shipped = profile.load("miniature")
    engine = shipped.engine("gemma", speculation=True)
    assert shipped.resident == 2
    assert engine.needs == spec.Needs(layers=16, drafter="miniature")
    flags = flags_of(engine)
    assert json.loads(flags.pop("--speculative-config")) == {
        "method": "mtp",
        "model": spec.MINIATURE_DRAFTER,
        "num_speculative_tokens": 3,
    }
    assert flags == {
        "--model": spec.MINIATURE_TARGET,
        "--enable-prefix-caching": "",
        "--dtype": "float32",
        "--enforce-eager": "",
        "--block-size": "32",
        "--max-model-len": "4096",
        "--enable-prompt-tokens-details": "",
        "--enable-auto-tool-choice": "",
        "--tool-call-parser": "gemma4",
        "--prefix-cache-retention-interval": "32",
        "--distributed-executor-backend": "uni",
    }
    assert engine.environment["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0"
    assert engine.declared == Declared(prefix_caching=True, speculation="mtp", draft_tokens=3)


def test_the_heavy_miniature_has_dead_neurons_instead_of_dead_layers() -> None:
    heavy = profile.load("miniature-heavy").engine("gemma", speculation=True)
    assert heavy.needs == spec.Needs(layers=0, mlp=48000, drafter="miniature")


def test_without_speculation_there_is_no_drafter_and_none_is_declared() -> None:
    plain = profile.load("miniature").engine("gemma_autoregressive", speculation=False)
    assert "--speculative-config" not in plain.arguments
    assert plain.needs == spec.Needs(layers=16)
    assert plain.declared == Declared(prefix_caching=True)
    assert plain.subject["drafter"] is None


def test_every_fault_of_a_profile_is_in_one_message(write: Write) -> None:
    path = write(
        """
        resident = 3
        descripton = "x"
        [model]
        layers = "many"
        [engine]
        boot_deadline = 30
        prefix_caching = 1
        port = true
        [engine.flags]
        block_size = 32
        "--port" = 8000
        "--served_model_name" = "x"
        "--dtype" = [1, true]
        [engine.environment]
        X = 1.5
        [statistics]
        alpha = 1.0
        [budgets.cached_turn]
        p50 = "fast"
        [engines.gemma.model]
        layer = 3
        [engines]
        other = 1
        """
    )
    found = fault(path)
    assert found.what == f"The profile {str(path)!r} has 15 faults."
    assert found.evidence == "\n".join(
        f"- {path}: {each}"
        for each in (
            "resident = 3 is not a whole number from 1 to 2",
            (
                "descripton is not known; did you mean description? Allowed in the top level:"
                " as_found, attach, budgets, description, drafter, engine, engines, extends,"
                " fitness, model, python, resident, statistics"
            ),
            "[model] layers = 'many' is not a whole number from 0",
            (
                "[engine] boot_deadline is not known; did you mean boot_deadline_s? Allowed in"
                " [engine]: boot_cap_s, boot_deadline_s, environment, flags, min_available_gib,"
                " module, port, prefix_caching, tools"
            ),
            "[engine] prefix_caching = 1 is not true or false",
            "[engine] port = True is not a whole number from 1 to 65535",
            "[engine.flags] block_size is not a flag; did you mean --block-size?",
            "[engine.flags] --port may not be set here: say [engine] port instead",
            (
                "[engine.flags] --served_model_name may not be set here: each boot makes its own,"
                " to know its engine again"
            ),
            (
                "[engine.flags] --dtype = [1, True] is not a text, a number, true, false, a list"
                " of these, or a table"
            ),
            "[engine.environment] X = 1.5 is not a text or a whole number",
            "[statistics] alpha = 1.0 is not a number between 0 and 1",
            "[budgets.cached_turn] p50 = 'fast' is not a number above 0",
            (
                "[engines.gemma.model] layer is not known; did you mean layers? Allowed in"
                " [engines.gemma.model]: instruction_tuned, layers, mlp, revision, source"
            ),
            "[engines] other = 1 is not a table",
        )
    )
    assert found.next_step == "Nothing was booted. Correct the profile and run again."


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('[budgets]\n"single.p50" = 0.5\nsingle.p50 = 9.5', "single.p50 is given twice"),
        ('[engine.flags]\n"--gpu-memory-utilization" = 1.7', "is not a share of the memory"),
        ("[statistics]\ntolerance = 0.5\ndetect = 0.1", "is not above tolerance = 0.5"),
        (f"[statistics]\ndetect = 1{'0' * 400}", "detect = 1"),
    ],
)
def test_what_can_never_be_meant_is_a_fault(write: Write, text: str, told: str) -> None:
    assert told in fault(write(text)).evidence


def test_a_profile_may_begin_with_a_mark_of_its_byte_order(write: Write) -> None:
    path = write("resident = 2")
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert profile.load(str(path)).resident == 2


@pytest.mark.parametrize("value", ["nan", "inf", "-1", "0", "true", "'1'", "[]"])
def test_a_deadline_is_a_number_above_nothing(write: Write, value: str) -> None:
    assert "boot_deadline_s = " in fault(write(f"[engine]\nboot_deadline_s = {value}")).evidence


@pytest.mark.parametrize("section", ["model", "engine", "drafter", "budgets", "engines"])
def test_a_section_that_is_no_table_is_a_fault(write: Write, section: str) -> None:
    assert fault(write(f"{section} = 1")).evidence.endswith(f"{section} = 1 is not a table")


@pytest.mark.parametrize(
    ("text", "contradiction"),
    [
        ("[model]\nsource = 'a/b'\nlayers = 3", "[model] layers is ballast for the miniature;"),
        ("[drafter]\ndraft_tokens = 3", "[drafter] has no source"),
        ("[model]\nsource = 'a/b'\n[drafter]\nsource = 'miniature'", "does not fit"),
        ("[drafter]\nsource = 'a/b'", "[drafter] source = 'a/b' does not fit [model] source"),
        ("[engine]\nboot_cap_s = 5", "boot_cap_s = 5 is below boot_deadline_s = 120"),
        (
            "[engines.gemma.engine]\nboot_cap_s = 5",
            "[engines.gemma] [engine] boot_cap_s = 5 is below",
        ),
    ],
)
def test_keys_that_contradict_each_other_are_a_fault(
    write: Write, text: str, contradiction: str
) -> None:
    assert contradiction in fault(write(text)).evidence


def test_two_spellings_of_one_flag_are_a_fault(write: Write) -> None:
    text = '[engine.flags]\n"--block-size" = 32\n"--block_size" = 16'
    assert fault(write(text)).evidence.endswith("--block_size says the same flag as --block-size")


def test_an_unknown_name_lists_those_that_are_known() -> None:
    with pytest.raises(UsageError) as unknown:
        profile.load("minature")
    assert str(unknown.value) == (
        "There is no profile 'minature'.\n"
        f"No file minature, and the shipped profiles are: {', '.join(SHIPPED)}.\n"
        "Did you mean 'miniature'? Nothing was booted."
    )


def test_an_unknown_parent_names_its_child(write: Write) -> None:
    path = write("extends = 'sparc'")
    found = fault(path)
    assert found.what == f"There is no profile 'sparc' ({path} extends it)."
    assert found.next_step == "Did you mean 'spark'? Nothing was booted."


def test_a_circle_is_drawn(write: Write) -> None:
    one, two = write("extends = 'two.toml'", "one.toml"), write("extends = 'one.toml'", "two.toml")
    assert str(fault(one)) == (
        "The profile 'one' extends itself.\n"
        f"{one} extends {two} extends {one}\n"
        "Nothing was booted. Take out one `extends`."
    )


@pytest.mark.parametrize("content", [b"resident = ", b"\xff\xfe", b"[a]\n[a]"])
def test_what_is_no_toml_is_told_with_its_reason(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.toml"
    path.write_bytes(content)
    found = fault(path)
    assert found.what == f"The profile {path} cannot be read."
    assert found.evidence
    assert found.next_step == "Nothing was booted. A profile is a TOML file in UTF-8."


def test_a_fault_of_a_parent_is_told_with_the_parents_path(write: Write) -> None:
    parent = write("resident = 0", "parent.toml")
    child = write("extends = 'parent.toml'\nresidents = 1")
    evidence = fault(child).evidence
    assert f"- {child}: residents is not known; did you mean resident?" in evidence
    assert f"- {parent}: resident = 0 is not" in evidence


def test_a_childs_keys_lie_over_its_parents(write: Write) -> None:
    child = profile.load(
        write(
            """
            extends = "miniature"
            [model]
            layers = 20
            [engine.flags]
            "--no-enforce-eager" = true
            "--block_size" = 64
            "--prefix-cache-retention-interval" = false
            [engine.environment]
            OMP_NUM_THREADS = 4
            [budgets]
            "cached_turn.p50" = 0.5
            [budgets.first_token.cold_512]
            p50 = 2
            [statistics]
            detect = 0.3
            """
        )
    )
    engine = child.engine("gemma", speculation=True)
    assert child.name == "mine"
    assert child.resident == 2
    assert engine.needs == spec.Needs(layers=20, drafter="miniature")
    flags = flags_of(engine)
    assert "--enforce-eager" not in flags
    assert "--no-enforce-eager" in flags
    assert flags["--block_size"] == "64"
    assert "--block-size" not in flags
    assert "--prefix-cache-retention-interval" not in flags
    assert engine.environment["OMP_NUM_THREADS"] == "4"
    assert engine.environment["HF_HUB_OFFLINE"] == "1"
    assert child.budgets == {"cached_turn.p50": 0.5, "first_token.cold_512.p50": 2.0}
    assert (child.statistics.detect, child.statistics.tolerance) == (0.3, 0.02)


def test_a_budget_is_asked_for_by_name_and_may_be_missing(write: Write) -> None:
    mine = profile.load(write("[budgets]\n'cached_turn.p50' = 0.5"))
    assert mine.budget("cached_turn.p50").limit == 0.5
    assert mine.budget("cached_turn.p95").limit is None
    assert mine.budget("cached_turn.p95").profile == "mine"


@pytest.mark.parametrize(
    "flags",
    ['"--speculative-config" = false', '"--no-enable-prefix-caching" = true', '"--x" = 1'],
)
def test_the_flags_table_has_the_last_word_and_the_promise_stays(write: Write, flags: str) -> None:
    text = f'extends = "miniature"\n[engine.flags]\n{flags}'
    planted = profile.load(write(text)).engine("gemma", speculation=True)
    assert planted.declared == Declared(prefix_caching=True, speculation="mtp", draft_tokens=3)
    words = planted.arguments
    assert ("--speculative-config" in words) == ("speculative" not in flags)
    assert ("--enable-prefix-caching" in words) == ("caching" not in flags)


def test_prefix_caching_switched_off_in_the_open_is_declared_off(write: Write) -> None:
    off = profile.load(write("extends = 'miniature'\n[engine]\nprefix_caching = false"))
    engine = off.engine("gemma", speculation=True)
    assert engine.declared.prefix_caching is False
    assert "--no-enable-prefix-caching" in engine.arguments


def test_flags_are_bare_repeated_or_json(write: Write) -> None:
    text = """
    extends = "miniature"
    [engine.flags]
    "--middleware" = ["a", "b"]
    "--bare" = true
    "--config" = {a = 1, b = [2]}
    "--share" = 0.85
    """
    words = " ".join(profile.load(write(text)).engine("gemma", speculation=False).arguments)
    assert "--middleware a --middleware b --bare" in words
    assert '--config {"a": 1, "b": [2]} --share 0.85' in words


def test_a_fault_can_be_planted_in_one_engine_only(write: Write) -> None:
    planted = profile.load(
        write(
            """
            extends = "miniature"
            [engines.gemma.model]
            layers = 40
            [engines.weak.drafter]
            source = "miniature-weak"
            [engines.undrafted]
            drafter = false
            """
        )
    )
    assert planted.engine("gemma", speculation=True).needs == spec.Needs(
        layers=40, drafter="miniature"
    )
    assert planted.engine("gemma_autoregressive", speculation=False).needs == spec.Needs(layers=16)
    assert planted.engine("weak", speculation=True).needs == spec.Needs(
        layers=16, drafter="miniature-weak"
    )
    assert planted.engine("undrafted", speculation=True).declared.speculation is None
    assert planted.engine("gemma", speculation=True).profile == "mine"


def test_an_inherited_drafter_can_be_dropped(write: Write) -> None:
    bare = profile.load(write("extends = 'miniature'\ndrafter = false"))
    assert bare.engine("gemma", speculation=True).declared.speculation is None


def test_an_engine_of_a_tests_own_has_flags_over_the_profiles() -> None:
    mini = profile.load("miniature")
    own = mini.engine("short", speculation=False, flags={"--max-model-len": 512})
    assert flags_of(own)["--max-model-len"] == "512"
    with pytest.raises(UsageError) as wrong:
        mini.engine("short", speculation=False, flags={"max_model_len": 512})
    assert str(wrong.value) == (
        "The engine 'short' is asked for with 1 fault.\n"
        "- [engine.flags] max_model_len is not a flag; did you mean --max-model-len?\n"
        "Nothing was booted for it. Correct the call."
    )


def test_one_boot_serves_two_specs_only_if_all_that_is_booted_and_promised_is_equal(
    write: Write,
) -> None:
    mini = profile.load("miniature")
    gemma = mini.engine("gemma", speculation=True)
    assert mini.engine("other", speculation=True).key == gemma.key
    assert mini.engine("gemma", speculation=False).key != gemma.key
    assert mini.engine("gemma", speculation=True, copy=1).key != gemma.key
    assert mini.engine("gemma", speculation=True, environment={"A": 1}).key != gemma.key
    undrafted = write("extends='miniature'\n[engine.flags]\n'--speculative-config' = false")
    planted = profile.load(undrafted)
    honest = planted.engine("gemma_autoregressive", speculation=False)
    assert planted.engine("gemma", speculation=True).arguments == honest.arguments
    assert planted.engine("gemma", speculation=True).key != honest.key


def test_a_server_that_no_profile_speaks_of_has_nothing_declared() -> None:
    found = profile.load("miniature").engine("gemma", speculation=True).as_found()
    assert found.declared == Declared()


PAIR = "extends = 'spark'\n[model]\nsource = '{}'\n[drafter]\nsource = '{}'"


@pytest.mark.parametrize(
    ("target", "drafter", "odd"),
    [
        ("google/gemma-4-26B-A4B-it", "google/gemma-4-26B-A4B-assistant", "target"),
        ("google/gemma-4-26B-A4B", "google/gemma-4-26B-A4B-it-assistant", "drafter"),
        ("org/gemma-4-it_nvfp4", "org/gemma-4_assistant", "target"),
        ("/models/gemma-4-IT/", "/models/gemma-4-assistant", "target"),
        ("x/llama-Instruct", "x/llama-draft", "target"),
    ],
)
def test_one_side_alone_instruction_tuned_is_warned_of_before_the_boot(
    write: Write, target: str, drafter: str, odd: str
) -> None:
    mixed = profile.load(write(PAIR.format(target, drafter))).engine("gemma", speculation=True)
    other = "drafter" if odd == "target" else "target"
    (warning,) = mixed.warnings
    assert warning == (
        f"Only the {odd} is instruction-tuned (target {target}, drafter {drafter}): few drafts of"
        f" such a pair are accepted. Choose a {other} of the same tuning."
    )
    plain = profile.load(write(PAIR.format(target, drafter))).engine("gemma", speculation=False)
    assert plain.warnings == ()


@pytest.mark.parametrize(
    ("target", "drafter"),
    [
        ("google/gemma-4-26B-A4B-it", "google/gemma-4-26B-A4B-it-assistant"),
        ("google/gemma-4-26B-A4B", "google/gemma-4-26B-A4B-assistant"),
        ("RedHatAI/gemma-4-26B-A4B-it-FP8-Dynamic", "google/gemma-4-26B-A4B-it-assistant"),
        ("models--google--gemma-4-it/snapshots/0a", "google/gemma-4-it-assistant"),
        ("org/written-item", "org/iterative-italian"),
    ],
)
def test_a_pair_of_one_tuning_is_not_warned_of(write: Write, target: str, drafter: str) -> None:
    assert (
        not profile.load(write(PAIR.format(target, drafter)))
        .engine("gemma", speculation=True)
        .warnings
    )


def test_a_name_that_does_not_say_its_tuning_can_be_helped(write: Write) -> None:
    text = PAIR.format("a/b", "a/b-it-assistant").replace(
        "[drafter]", "instruction_tuned = true\n[drafter]"
    )
    assert profile.load(write(text)).engine("gemma", speculation=True).warnings == ()


def test_the_engines_python_is_the_profiles_then_the_environments_then_ours(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = write("python = 'venv/bin/python'")
    monkeypatch.delenv("LLMPERF_ENGINE_PYTHON", raising=False)
    assert profile.load("miniature").python == sys.executable
    monkeypatch.setenv("LLMPERF_ENGINE_PYTHON", "/opt/engine/bin/python")
    assert profile.load("miniature").python == "/opt/engine/bin/python"
    assert profile.load(named).python == str(named.parent / "venv/bin/python")


def test_local_paths_keep_their_meaning_wherever_they_are_read(
    write: Write, tmp_path: Path
) -> None:
    (tmp_path / "deep").mkdir()
    write("[model]\nsource = './weights'", "deep/parent.toml")
    child = profile.load(write("extends = 'deep/parent.toml'"))
    assert child.model.source == str(tmp_path / "deep" / "weights")


KEYS = st.text(st.characters(codec="ascii", categories=["L"]), min_size=1, max_size=8)
VALUES = st.recursive(
    st.integers() | st.booleans() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(KEYS, inner, max_size=2),
    max_leaves=4,
)
KNOWN = st.sampled_from(["model", "drafter", "engine", "engines", "budgets", "statistics"])


@given(st.dictionaries(KNOWN | KEYS, VALUES, max_size=4))
def test_any_table_has_faults_listed_or_none_and_never_breaks_the_check(
    table: dict[str, object],
) -> None:
    assert all(isinstance(each, str) for each in faults(table))
