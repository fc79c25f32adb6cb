"""Whether two arms differ in their declared factor and in nothing else that their ratio depends on.

Each arm against its own declaration is in the other rooms of ``proof``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from pytest_llmperf.denominator import Denominator
from pytest_llmperf.evidence import Measured
from pytest_llmperf.proof.contradiction import Contradiction, Finding
from pytest_llmperf.proof.values import LENGTH_TOLERANCE
from pytest_llmperf.proof.window import total
from pytest_llmperf.record import Declared, Request
from pytest_llmperf.units import count, percent

OUTPUT_TOLERANCE = 0.02
"""How far the arms' output may differ in tokens before whole-request times are not comparable."""

HIT_TOLERANCE = 0.01
"""How far the arms' shares of cached prompt tokens may differ under load."""

_DECLARED_FACTORS: dict[str, tuple[str, ...]] = {
    "prefix": (),
    "prefix_caching": ("prefix_caching",),
    "speculation": ("speculation", "draft_tokens"),
}
"""What of the engines' declarations may differ under a factor; other factors leave it open."""


class Sides(msgspec.Struct, frozen=True, kw_only=True):
    """Two arms, the factor they may differ in, and the denominator their ratio is counted by."""

    candidate: Measured
    reference: Measured
    factor: str | None
    of: Denominator

    @property
    def both(self) -> tuple[Measured, Measured]:
        """Candidate and reference."""
        return self.candidate, self.reference


Rule = Callable[[Sides], Contradiction | None]


def no_factor(sides: Sides) -> Contradiction | None:
    """One factor is declared, and the arms differ in it."""
    if sides.factor is None:
        seen = "The measurement names none."
    elif not _differs_in_factor(sides):
        seen = f"Both arms are alike in {sides.factor}."
    else:
        return None
    return Contradiction(
        kind="no_factor",
        reason="Two arms are compared that differ in no declared factor.",
        evidence=seen,
        remedy="Declare the one factor in which the arms differ, and let them differ in it.",
    )


def _differs_in_factor(sides: Sides) -> bool:
    candidate, reference = (each.arm for each in sides.both)
    if sides.factor in msgspec.structs.asdict(candidate.denominator):
        field = str(sides.factor)
        return bool(getattr(candidate.denominator, field) != getattr(reference.denominator, field))
    fields = _DECLARED_FACTORS.get(sides.factor or "", ())
    return not fields or any(
        _apart(candidate.declared, reference.declared, each) for each in fields
    )


def denominators_differ(sides: Sides) -> Contradiction | None:
    """The arms' denominators are equal in every field but the factor."""
    apart = [
        each
        for each in sides.candidate.arm.denominator.differences(sides.reference.arm.denominator)
        if each.partition(":")[0] != sides.factor
    ]
    if not apart:
        return None
    return Contradiction(
        kind="denominators_differ",
        reason="The arms are counted by different denominators.",
        evidence=f"Apart from the factor {sides.factor!r} they differ in {'; '.join(apart)}.",
        remedy="Compare numbers of one denominator only.",
    )


def engines_differ(sides: Sides) -> Contradiction | None:
    """The engines' declarations are equal but for the factor, where it names a part of them."""
    allowed = _DECLARED_FACTORS.get(sides.factor or "")
    if allowed is None:
        return None
    first, second = (each.arm.declared for each in sides.both)
    apart = [
        f"{field}: {getattr(first, field)!r} against {getattr(second, field)!r}"
        for field in Declared.__struct_fields__
        if field not in allowed and _apart(first, second, field)
    ]
    if not apart:
        return None
    return Contradiction(
        kind="engines_differ",
        reason=f"The engines differ in more than the factor {sides.factor!r}.",
        evidence=f"Their declarations differ in {'; '.join(apart)}.",
        remedy="Boot both engines alike but for the factor.",
    )


def _apart(first: Declared, second: Declared, field: str) -> bool:
    return bool(getattr(first, field) != getattr(second, field))


def prompts_differ(sides: Sides) -> Contradiction | None:
    """Both arms answered the same prompts, equally often."""
    first, second = (_prompts(each, sides.factor) for each in sides.both)
    if first == second and None not in first:
        return None
    missing = sorted(str(each) for each in (first - second) + (second - first))
    return Contradiction(
        kind="prompts_differ",
        reason="The arms did not answer the same prompts.",
        evidence=f"{len(missing)} prompts stand on one side only, the first {missing[0]}."
        if missing
        else "Some turns do not say which prompt they are: unknown never equals known.",
        remedy="Give both arms the same workload and turns.",
    )


def _prompts(measured: Measured, factor: str | None) -> Counter[Any]:
    """What identifies the prompts; under the factor ``prefix`` their bytes must differ."""
    found: list[Any] = []
    for each in measured.turns:
        if each.prompt is None and each.prompt_digest is None:
            found.append(None)
        elif factor == "prefix":
            found.append(each.prompt)
        else:
            found.append((each.prompt, each.prompt_digest))
    return Counter(found)


def sampling_differs(sides: Sides) -> Contradiction | None:
    """Both arms were asked alike."""
    apart = [
        f"{name}: {_listed(first)} against {_listed(second)}"
        for name in ("temperature", "max_tokens", "tokens_from")
        if name != sides.factor
        and (first := _asked(sides.candidate, name)) != (second := _asked(sides.reference, name))
    ]
    if not apart:
        return None
    return Contradiction(
        kind="sampling_differs",
        reason="The arms were not asked and counted alike.",
        evidence=f"They differ in {'; '.join(apart)}.",
        remedy="Ask both arms with the same temperature and max_tokens, counted by one source.",
    )


def _asked(measured: Measured, name: str) -> set[Any]:
    """The distinct values of a field; of ``tokens_from`` only whether a tokenizer counted."""
    found = {getattr(each, name) for each in measured.turns if each.completed}
    if name == "tokens_from":
        return {"tokenizer" if each == "retokenised" else "server" for each in found}
    return found


def _listed(values: set[Any]) -> str:
    return ", ".join(sorted(map(str, values)))


def prompt_lengths_differ(sides: Sides) -> Contradiction | None:
    """The arms' prompts are equally long."""
    first, second = (_tokens(each, "prompt_tokens") for each in sides.both)
    if first is None or second is None or not _is_beyond(first, second, LENGTH_TOLERANCE):
        return None
    return Contradiction(
        kind="prompt_lengths_differ",
        reason="The arms' prompts are not equally long.",
        evidence=f"{count(first)} against {count(second)} prompt tokens over all turns; "
        f"{percent(LENGTH_TOLERANCE)} is allowed.",
        remedy="Look at what the templates add on each side.",
    )


def output_lengths_differ(sides: Sides) -> Contradiction | None:
    """The arms' answers are equally long, where the time for a whole answer is compared."""
    if sides.of.unit != "request" or sides.of.clock == "first_token":
        return None
    first, second = (_tokens(each, "completion_tokens") for each in sides.both)
    known = first is not None and second is not None
    if known and not _is_beyond(first or 0, second or 0, OUTPUT_TOLERANCE):
        return None
    return Contradiction(
        kind="output_lengths_differ",
        reason="The arms' answers are not known to be equally long, "
        "so times for whole answers are not comparable.",
        evidence=f"{count(first)} against {count(second)} output tokens over all turns; "
        f"{percent(OUTPUT_TOLERANCE)} is allowed.",
        remedy="Compare per token (decode_throughput), or fix the length of the answers.",
    )


def _tokens(measured: Measured, field: str) -> int | None:
    """All tokens of the completed turns; ``None`` if there are none or one is unknown."""
    turns = [each for each in measured.turns if each.completed]
    return total(_usage(each, field) for each in turns) if turns else None


def _usage(turn: Request, field: str) -> int | None:
    found: int | None = getattr(turn.usage, field)
    return found


def _is_beyond(first: int, second: int, tolerance: float) -> bool:
    return abs(first - second) > tolerance * min(first, second)


def whole_turn_ratio(sides: Sides) -> Finding | None:
    """What a cached over cold ratio of whole turns contains."""
    if sides.factor != "prefix" or sides.of.clock == "first_token":
        return None
    return Finding(
        kind="whole_turn_ratio",
        text="A cached prefix only saves prefill: this ratio also contains decoding, "
        "which the cache does not touch; the ratio of times to first token is the cache's own.",
    )


def _beside(measured: Measured, factor: str | None) -> dict[str, Any]:
    """An engine's facts without those that the factor itself consists of."""
    subject = measured.engine.subject if measured.engine else {}
    if factor != "speculation":
        return subject
    found = {key: fact for key, fact in subject.items() if not key.startswith("drafter")}
    if isinstance(found.get("flags"), dict):
        flags: dict[str, Any] = found["flags"]
        found["flags"] = {key: each for key, each in flags.items() if "speculative" not in key}
    return found


def confounded(sides: Sides) -> Finding | None:
    """Facts of the engines that differ beside the factor."""
    first, second = (_beside(each, sides.factor) for each in sides.both)
    apart = sorted(key for key in first.keys() & second.keys() if first[key] != second[key])
    if len(apart) <= 1:
        return None
    return Finding(
        kind="confounded", text=f"The engines differ in several facts: {', '.join(apart)}."
    )


def hit_shares_differ(sides: Sides) -> Contradiction | None:
    """Under load, arms of one cache state found alike shares of their prompts cached."""
    prefixes = {each.arm.denominator.prefix for each in sides.both}
    if not sides.of.is_load or len(prefixes) > 1:
        return None
    shares = [_hit_share(each.turns) for each in sides.both]
    known = [each for each in shares if each is not None]
    if len(known) == len(shares) and max(known) - min(known) <= HIT_TOLERANCE:
        return None
    candidate, reference = map(percent, shares)
    return Contradiction(
        kind="hit_shares",
        reason="The arms did not find alike shares of their prompts cached, or it is not known.",
        evidence=f"Cached tokens of prompt tokens: {candidate} against {reference}.",
        remedy="Declare prefix='cold' or prefix='warm', so that each arm's share is proven; "
        "start the server with --enable-prompt-tokens-details.",
    )


def _hit_share(turns: Iterable[Request]) -> float | None:
    done = [each for each in turns if each.completed]
    cached = total(each.usage.cached_tokens for each in done)
    prompts = total(each.usage.prompt_tokens for each in done)
    return None if cached is None or not prompts else cached / prompts
