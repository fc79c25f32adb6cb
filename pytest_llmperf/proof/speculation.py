"""Whether the drafter drafted and was accepted as the profile declares, by the server's counters.

Acceptance is evidence, never a result: what speculation gains is measured, not inferred.
"""

from __future__ import annotations

from pytest_llmperf.proof.contradiction import Contradiction, Finding
from pytest_llmperf.proof.window import Window, growth
from pytest_llmperf.units import count, percent

CONSISTENCY = 0.10
"""Relative difference of output by usage from output by drafting counters that is unremarkable."""


def counters_unreadable(window: Window) -> Contradiction | None:
    """The counters can be read where speculation must be proven by them."""
    if window.is_readable or _declared(window) is None:
        return None
    return Contradiction(
        kind="counters_unreadable",
        reason="The server's counters cannot be read, and only they prove speculation.",
        evidence=f"Speculation: requested {_declared(window)}, active unknown "
        f"({window.unreadable_why}).",
        remedy="Make the metrics page readable (no --disable-log-stats; the address of the engine "
        "itself), or measure an engine that declares no speculation.",
    )


def no_drafts(window: Window) -> Contradiction | None:
    """A declared drafter drafted."""
    drafts = _drafts(window)
    if (
        _declared(window) is None
        or not window.is_readable
        or drafts
        or _is_nothing_to_draft(window)
    ):
        return None
    if window.delta.restarted is not None:
        return None
    return Contradiction(
        kind="no_drafts",
        reason=f"Speculation: requested {_declared(window)}, "
        f"active {'unknown' if drafts is None else 'no'}.",
        evidence="The metrics page has no drafting counters."
        if drafts is None
        else f"0 drafts in the window, while {count(window.output_tokens)} tokens came out.",
        remedy="Check --speculative-config in the engine's command and its log: "
        "the engine must not run without its drafter.",
    )


def low_acceptance(window: Window) -> Contradiction | None:
    """The target accepts at least the declared share of what the drafter proposes."""
    if _declared(window) is None or not _drafts(window):
        return None
    acceptance = window.delta.acceptance
    floor = window.measured.measurement.min_acceptance
    if acceptance is not None and floor <= acceptance <= 1:
        return None
    delta = window.delta
    return Contradiction(
        kind="low_acceptance",
        reason=f"Acceptance of {_named(window, 'drafter')} by {_named(window, 'model')} is "
        f"{'unknown' if acceptance is None else percent(acceptance)}, "
        f"the floor is {percent(floor)}.",
        evidence=f"In the window {growth(delta.accepted_tokens, 'accepted')} of "
        f"{growth(delta.draft_tokens, 'drafted tokens')} in {growth(delta.drafts, 'drafts')}.",
        remedy="Pair the drafter made for this target (an -it drafter with an -it target), "
        "and look at the sampling temperature.",
    )


def undeclared(window: Window) -> Contradiction | None:
    """An engine of ours that declares no drafter does not draft."""
    drafts = _drafts(window)
    if _declared(window) is not None or not drafts or _is_attached(window):
        return None
    return Contradiction(
        kind="undeclared_speculation",
        reason="The engine speculates, and its profile declares that it does not.",
        evidence=f"{drafts:,.0f} drafts in the window.",
        remedy="Declare the drafter in the profile, or take it out of the engine's command.",
    )


def unknown(window: Window) -> Finding | None:
    """What is not known of speculation where none is declared."""
    if _declared(window) is not None:
        return None
    drafts = _drafts(window)
    if not window.is_readable:
        return Finding(
            kind="speculation_unknown",
            text="Whether the engine speculates is unknown: "
            f"no counters ({window.unreadable_why}).",
        )
    if drafts and _is_attached(window):
        return Finding(
            kind="speculation_unknown",
            text=f"The attached server made {drafts:,.0f} drafts; nothing is declared of it.",
        )
    return None


def nothing_to_draft(window: Window) -> Finding | None:
    """Answers of one token, in which a drafter has no work."""
    if _declared(window) is None or _drafts(window) or not _is_nothing_to_draft(window):
        return None
    return Finding(
        kind="nothing_to_draft",
        text="Answers of one token leave nothing to draft: speculation is not shown.",
    )


def output_disagrees(window: Window) -> Finding | None:
    """Output by usage that drafts and acceptance do not add up to.

    Formula: output = drafts * (1 + accepted / drafts), and one token a request from its prefill.
    """
    delta, output = window.delta, window.output_tokens
    if not delta.drafts or delta.accepted_tokens is None or output is None:
        return None
    made = delta.drafts + delta.accepted_tokens + len(window.inside)
    cut_short = len(window.inside) * (window.measured.arm.declared.draft_tokens or 0)
    if abs(made - output) <= CONSISTENCY * output + cut_short:
        return None
    return Finding(
        kind="output_disagrees",
        text=f"Drafts and acceptance add up to {made:,.0f} output tokens, "
        f"usage says {count(output)}.",
    )


def _declared(window: Window) -> str | None:
    return window.measured.arm.declared.speculation


def _drafts(window: Window) -> float | None:
    """Drafting steps; drafted tokens on pages too old to count steps."""
    steps = window.delta.drafts
    return window.delta.draft_tokens if steps is None else steps


def _is_nothing_to_draft(window: Window) -> bool:
    outputs = [each.usage.completion_tokens for each in window.inside]
    return bool(outputs) and all(each == 1 for each in outputs)


def _is_attached(window: Window) -> bool:
    return window.measured.engine is not None and window.measured.engine.attached


def _named(window: Window, part: str) -> str:
    """The engine's model or drafter as its record names it."""
    engine = window.measured.engine
    named = None if engine is None else engine.subject.get(part)
    if named is not None:
        return str(named)
    if part == "model" and engine is not None:
        return engine.served_model
    return f"the {'target' if part == 'model' else 'drafter'}"
