"""The command line: every option with its help, and the settings that come of them.

What a setting means is in ``settings``; pytest's hooks are in ``plugin``.
"""

from __future__ import annotations

import os
import secrets
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pytest_llmperf.errors import LlmperfError, UsageError
from pytest_llmperf.plugin.keys import ROUNDS
from pytest_llmperf.settings import Settings, attachments, default_profile

LOCK_WAIT_S = 1800.0
"""How long another job is waited for unless told otherwise: longer than all suites take."""

_FEWEST_PAIRS = 3


def add(parser: pytest.Parser) -> None:
    """Add all options."""
    group = parser.getgroup("llmperf", "performance regression tests of LLM serving")
    _add_engines(parser, group)
    _add_judging(group)
    _add_past(group)
    _add_host(group)


def _add_engines(parser: pytest.Parser, group: pytest.OptionGroup) -> None:
    """What is measured, and where the evidence comes from and goes to."""
    group.addoption(
        "--llmperf-profile",
        metavar="NAME|FILE",
        help="what the engine fixtures boot: a shipped profile (miniature, miniature-heavy, spark, "
        "...) or your own TOML file, which may say extends = 'spark' and add budgets. Default: "
        "LLMPERF_PROFILE, then ini llmperf_profile, then spark with an NVIDIA GPU, miniature "
        "without.",
    )
    parser.addini("llmperf_profile", "the profile that engine fixtures boot by default")
    group.addoption(
        "--llmperf-attach",
        metavar="[NAME=]URL",
        action="append",
        default=[],
        help="measure a server that is already up instead of booting one; NAME is the engine "
        "fixture it stands for (default gemma). May be repeated; engines that are not attached "
        "skip. Example: --llmperf-attach http://127.0.0.1:8000",
    )
    group.addoption(
        "--llmperf-dry-run",
        action="store_true",
        help="boot nothing and measure nothing: check profile and declarations, and print for each "
        "engine its command, environment, cache unit and memory, and the gates that would run",
    )
    group.addoption(
        "--llmperf-replay",
        metavar="DIR",
        type=Path,
        help="judge recorded evidence with the same tests, verdicts and exit codes; no engine",
    )
    group.addoption(
        "--llmperf-evidence",
        metavar="DIR",
        type=Path,
        help="where this run's evidence goes (default .llmperf/<time>-<id> below the root)",
    )


def _add_judging(group: pytest.OptionGroup) -> None:
    """How it is judged, and who is told."""
    group.addoption(
        "--llmperf-mode",
        choices=("quick", "gate", "aa", "plan"),
        default="quick",
        help="quick: one boot, a few blocks; claims hold for this boot only (default). "
        "gate: several boots, one round of the tests each; claims hold for the build, and gates "
        "against the past are screened by history and confirmed on fresh boots. "
        "aa: gates against the past are held to the same profile on fresh boots; none may be red. "
        "plan: boot nothing; print the boots, turns and minutes that each gate needs, by history",
    )
    group.addoption(
        "--llmperf-pairs",
        metavar="N",
        type=int,
        default=5,
        help="pairs of boots that --llmperf-mode=aa measures (default 5)",
    )
    group.addoption(
        "--llmperf-summary",
        metavar="FILE",
        type=Path,
        help="append the closing table to FILE as Markdown, for a CI job's summary",
    )
    group.addoption(
        "--llmperf-strict",
        action="store_true",
        help="exit with 12 when a gate is INCONCLUSIVE and nothing is worse",
    )
    group.addoption(
        "--llmperf-seed",
        type=int,
        metavar="N",
        help="seed of the nonces that keep cold prompts cold (default: random, recorded)",
    )


def _add_past(group: pytest.OptionGroup) -> None:
    """What gates against the past are held to."""
    group.addoption(
        "--llmperf-against",
        metavar="PROFILE",
        help="hold gates against the past to this profile on fresh boots instead of to history: "
        "another configuration, checkpoint, or another Python with another vLLM",
    )
    group.addoption(
        "--llmperf-history",
        metavar="DIR",
        type=Path,
        help="the folder of past sessions (default .llmperf-history below the root)",
    )
    group.addoption(
        "--llmperf-record",
        action="store_true",
        help="let this session join the history: valid gates whatever their verdict, but a "
        "regression only once it is accepted with a reason",
    )
    group.addoption(
        "--llmperf-creep",
        metavar="SHARE",
        type=float,
        help="make a gate against the past red when the mean of its last five sessions is worse "
        "than its pinned anchor by more than SHARE, such as 0.05 (default: the profile's, else it "
        "is told and not judged)",
    )
    group.addoption(
        "--llmperf-boots",
        metavar="N",
        type=int,
        help="boots of each engine in gate mode (default: the profile's)",
    )


def _add_host(group: pytest.OptionGroup) -> None:
    """How jobs of one host keep out of each other's way."""
    group.addoption(
        "--llmperf-lock",
        metavar="FILE",
        type=Path,
        default=os.environ.get("LLMPERF_LOCK"),
        help="the lock of this host, held from the first boot to the end, so that two jobs never "
        "measure at once; in containers name a file on a folder that all of them share. Default: "
        "LLMPERF_LOCK, then /tmp/pytest-llmperf.lock. A replay and a plan take no lock.",
    )
    group.addoption(
        "--llmperf-lock-wait",
        metavar="SECONDS",
        type=float,
        default=LOCK_WAIT_S,
        help="how long to wait for another job that measures on this host "
        f"(default {LOCK_WAIT_S:g}); after that every gate is INVALID and says for whom it waited",
    )


def settings(config: pytest.Config) -> Settings:
    """Read the run's settings: command line before environment before ini before default.

    :raises UsageError: an address that is none, or an engine attached twice.
    """
    _check_together(config)
    chosen = _chosen_profile(config)
    stated = attachments(config.getoption("--llmperf-attach"))
    named, pages, as_found = _named_servers(chosen)
    if as_found and not (stated or named or config.getoption("--llmperf-replay")):
        raise UsageError(
            f"The profile {chosen!r} names no server.",
            "It takes servers as they are found, and its [attach] is empty.",
            "Extend it and name them under [attach], or give --llmperf-attach URL.",
        )
    seed = config.getoption("--llmperf-seed")
    return Settings(
        profile=chosen or default_profile(),
        profile_was_chosen=bool(chosen) and not as_found,
        attach=stated or named,
        metrics={} if stated else pages,
        replay=config.getoption("--llmperf-replay"),
        evidence=config.getoption("--llmperf-evidence") or _new_folder(_root(config)),
        mode=config.getoption("--llmperf-mode"),
        rounds=config.stash[ROUNDS],
        pairs=config.getoption("--llmperf-pairs"),
        history=history(config),
        record=config.getoption("--llmperf-record"),
        creep=config.getoption("--llmperf-creep"),
        summary=config.getoption("--llmperf-summary"),
        against=config.getoption("--llmperf-against"),
        strict=config.getoption("--llmperf-strict"),
        lock=config.getoption("--llmperf-lock"),
        lock_wait_s=config.getoption("--llmperf-lock-wait"),
        dry_run=config.getoption("--llmperf-dry-run"),
        seed=secrets.randbelow(2**31) if seed is None else seed,
    )


def _named_servers(chosen: str | None) -> tuple[dict[str, str], dict[str, str], bool]:
    """The servers that a chosen profile names, their pages, and whether they are taken as found.

    :raises UsageError: the profile says something wrong.
    """
    if not chosen:
        return {}, {}, False
    from pytest_llmperf import profile  # noqa: PLC0415 - only where one is chosen

    found = profile.load(chosen)
    named = attachments([f"{name}={url}" for name, url in found.attach.items()])
    return named, found.metrics, found.as_found


def _root(config: pytest.Config) -> Path:
    """Where a run leaves things: pytest's root where a file says it, else where it was started.

    Without such a file pytest guesses the root from all arguments, an option's value among them.
    """
    return config.rootpath if config.inipath is not None else config.invocation_params.dir


def _check_together(config: pytest.Config) -> None:
    """Refuse what could only fail after the run.

    :raises UsageError: options that exclude each other, a summary that cannot be written, or a
        reference that is no profile.
    """
    if config.getoption("--llmperf-replay") and config.getoption("--llmperf-record"):
        raise UsageError(
            "--llmperf-record was given with --llmperf-replay.",
            "A replay measures nothing that could join the history.",
            "Record while measuring, or run python -m pytest_llmperf.history add FOLDER.",
        )
    summary: Path | None = config.getoption("--llmperf-summary")
    if summary is not None and (summary.is_dir() or not summary.absolute().parent.is_dir()):
        raise UsageError(
            f"--llmperf-summary={summary} cannot be written.",
            "It is a folder."
            if summary.is_dir()
            else f"There is no folder {summary.absolute().parent}.",
            "Make the folder first, or name another file.",
        )
    if config.getoption("--llmperf-against") is not None:
        from pytest_llmperf import profile  # noqa: PLC0415 - only where one is named

        profile.load(config.getoption("--llmperf-against"))
    creep: float | None = config.getoption("--llmperf-creep")
    if creep is not None and not 0 < creep < 1:
        raise UsageError(
            f"--llmperf-creep={creep} is no share.",
            "It is how much worse than its anchor a gate may get, between 0 and 1.",
            "Give 0.05 for five percent.",
        )
    _check_replay(config)
    _check_evidence(config)
    if config.getoption("--llmperf-pairs") < _FEWEST_PAIRS:
        raise UsageError(
            f"--llmperf-pairs={config.getoption('--llmperf-pairs')} decides nothing.",
            f"The first look at fresh boots is after {_FEWEST_PAIRS} pairs.",
            f"Give {_FEWEST_PAIRS} or more.",
        )


def _check_replay(config: pytest.Config) -> None:
    """Refuse to measure fresh boots out of recorded evidence, or to judge what is not there.

    :raises UsageError: a mode or reference that needs engines beside a replay, or no such path.
    """
    recorded: Path | None = config.getoption("--llmperf-replay")
    if recorded is None:
        return
    if not recorded.exists():
        raise UsageError(
            f"--llmperf-replay={recorded} is not there.",
            "Nothing was judged.",
            "Name a session's folder, its evidence.jsonl, or a folder of several.",
        )
    mode, against = config.getoption("--llmperf-mode"), config.getoption("--llmperf-against")
    given = f"--llmperf-mode={mode}" if mode in {"aa", "plan"} else None
    given = f"--llmperf-against={against}" if against is not None else given
    given = "--llmperf-dry-run" if config.getoption("--llmperf-dry-run") else given
    given = "--llmperf-attach" if config.getoption("--llmperf-attach") else given
    if given is not None:
        raise UsageError(
            f"{given} was given with --llmperf-replay.",
            "Recorded evidence boots nothing; rounds and fresh pairs that it holds are judged "
            "as they were recorded.",
            "Leave one of the two out.",
        )


def _check_evidence(config: pytest.Config) -> None:
    """Refuse a folder that no evidence could be written to, before anything boots.

    :raises UsageError: it is no folder, or holds a session's evidence.
    """
    folder: Path | None = config.getoption("--llmperf-evidence")
    if folder is None or config.getoption("--llmperf-replay"):
        return
    taken = (folder / "evidence.jsonl").exists()
    if taken or (folder.exists() and not folder.is_dir()):
        raise UsageError(
            f"--llmperf-evidence={folder} cannot take this run's evidence.",
            "It holds a session's evidence." if taken else "It is no folder.",
            "Name another folder; evidence is never overwritten.",
        )


def history(config: pytest.Config) -> Path:
    """Where past sessions are."""
    stated: Path | None = config.getoption("--llmperf-history")
    return stated or _root(config) / ".llmperf-history"


def rounds(config: pytest.Config) -> int:
    """How many boots each engine gets: more than one in gate mode only, none of them replayed."""
    stated: int | None = config.getoption("--llmperf-boots")
    if stated is not None and stated < 1:
        raise pytest.UsageError(f"llmperf: --llmperf-boots={stated} is not 1 or more.")
    if config.getoption("--llmperf-mode") != "gate" or config.getoption("--llmperf-replay"):
        return 1
    from pytest_llmperf import profile  # noqa: PLC0415 - only in gate mode

    try:
        found = profile.load(_chosen_profile(config) or default_profile())
    except LlmperfError as error:
        raise pytest.UsageError(f"llmperf: {error}") from None
    return stated or found.statistics.boots


def _chosen_profile(config: pytest.Config) -> str | None:
    chosen: str | None = (
        config.getoption("--llmperf-profile")
        or os.environ.get("LLMPERF_PROFILE")
        or config.getini("llmperf_profile")
    )
    return chosen or None


def _new_folder(root: Path) -> Path:
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    return root / ".llmperf" / f"{stamp}-{secrets.token_hex(2)}"
