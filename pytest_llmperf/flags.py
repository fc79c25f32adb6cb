"""What vLLM's command line is known to take: its flags, and its methods of speculation.

Both were read from vLLM 0.32. An unknown flag is only warned of, since another version may have it;
what a profile does with flags is in ``spec``.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

VERSION = "0.32"
"""The version of vLLM whose flags and methods are known here."""

_LIST = Path(__file__).with_name("engine_flags.txt")
"""One flag a line, as the option strings of ``vllm.entrypoints.launchers.cli_args`` give them."""

METHODS = (
    *("mtp", "eagle", "eagle3", "dflash", "dspark", "draft_model", "ngram", "ngram_gpu"),
    *("suffix", "medusa", "mlp_speculator", "extract_hidden_states", "custom_class"),
    *("bailing_hybrid_mtp", "bailing_hybrid_v3_mtp", "deepseek_mtp", "dots3_note_mtp"),
    *("ernie_mtp", "exaone4_5_mtp", "exaone_moe_mtp", "gemma4_mtp", "glm4_moe_lite_mtp"),
    *("glm4_moe_mtp", "glm_ocr_mtp", "hy_v3_mtp", "hy_v4_mtp", "kimi_k3_mtp"),
    *("longcat_flash_mtp", "mimo_mtp", "mimo_v2_mtp", "minimax_m3_mtp", "nemotron_h_mtp"),
    *("pangu_ultra_moe_mtp", "qwen3_5_mtp", "qwen3_next_mtp", "qwen4_exp_mtp", "step3p5_mtp"),
)
"""Values of ``method`` in a speculative configuration; what is no family's own comes first."""

_SHOWN_METHODS = 13
_CLOSE = 0.75
_FLAG = re.compile(r"--[a-z][a-z0-9-]*")


def wrong_method(value: object) -> str | None:
    """What was expected where ``value`` is no method of speculation; ``None`` where it is one."""
    if isinstance(value, str) and value in METHODS:
        return None
    near = difflib.get_close_matches(str(value), METHODS, n=1, cutoff=0.6)
    guess = f"; did you mean {near[0]}?" if near else "."
    shown = ", ".join(METHODS[:_SHOWN_METHODS])
    return f"a method of vLLM {VERSION}{guess} Known are {shown}, and names of model families"


def unknown(flags: Iterable[str]) -> list[str]:
    """A line for each flag that vLLM is not known to take, with the one that was probably meant."""
    return [
        f"[engine.flags] {flag} is no flag of vLLM {VERSION}{_guess(flag)} It is passed on."
        for flag in flags
        if not _is_known(flag)
    ]


def named_in(text: str) -> list[str]:
    """The flags of vLLM that a text names, each once; any other word of it is left out."""
    return list(dict.fromkeys(each for each in _FLAG.findall(text) if each in _known()))


@cache
def _known() -> frozenset[str]:
    return frozenset(_LIST.read_text(encoding="utf-8").split())


def _is_known(flag: str) -> bool:
    """Whether it is on the list, as ``--a-b``, ``--a_b``, ``--no-a-b``, ``--a.b`` or ``-O3``."""
    whole = flag.partition(".")[0].replace("_", "-")
    names = {whole, whole.replace("--no-", "--", 1)}
    return flag.startswith("-O") or not names.isdisjoint(_known())


def _guess(flag: str) -> str:
    near = difflib.get_close_matches(flag.replace("_", "-"), sorted(_known()), n=1, cutoff=_CLOSE)
    return f"; did you mean {near[0]}?" if near else "."
