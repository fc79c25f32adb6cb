"""What a number is of: its place, where any difference forbids comparison, and its subject.

Facts of the machine are read in ``place``, facts of an engine in ``server``; what a difference in
subject does to a verdict is decided elsewhere. Unknown never equals known, nor another unknown.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

from pytest_llmperf import record
from pytest_llmperf.denominator import Denominator
from pytest_llmperf.evidence import Measured

Value = str | int | float | bool | None
Side = Literal["place", "subject"]

CORE = ("machine", "gpu", "gpu_driver")
"""Facts of a place without which two places cannot be told to be one."""

NOT_GIVEN = "not given"
"""The value of a flag or variable that is known to be absent."""

NONE = "none"
"""The value of a thing that is known not to be there, such as a drafter."""

_GIVEN = "given"
_OF_REFERENCE = "reference "
_ITEMS = ("build", "model", "drafter", "workload")
_STREAM_INTERVAL = "--stream-interval"
_ONE_BY_ONE = 1
"""The engine's own stream interval where no flag gives one."""

_OF_MODEL = ("--model", "--revision")
_OF_DRAFTER = ("--speculative-config",)
_GIB = 2**30
_SHOWN = 60
_BEYOND = 12
"""Characters that are shown at least from where two texts begin to differ, and before it."""


class Half(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One half of an identity: facts by field, each a plain value or ``None`` for unknown.

    A fact whose name is the part of others before the dot says whether these are known as a whole:
    where it is known a missing one is known to be absent, where it is ``None`` all are unknown.
    """

    side: Side
    facts: dict[str, Value]

    @property
    def digest(self) -> str | None:
        """Equal for two halves exactly when they are equal; ``None`` with any fact unknown."""
        return None if self.unknown else digest(self.facts)

    @property
    def key(self) -> str:
        """A name for exactly these facts, unknown ones included; it says nothing of equality."""
        return digest(self.facts)

    @property
    def unknown(self) -> tuple[str, ...]:
        """The fields that are not known, sorted."""
        return tuple(sorted(field for field, value in self.facts.items() if value is None))

    def value(self, field: str) -> Value:
        """A fact; ``None`` where it is not known, ``NOT_GIVEN`` where it is known to be absent."""
        if field in self.facts:
            return self.facts[field]
        whole = field.partition(".")[0]
        return NOT_GIVEN if whole != field and self.facts.get(whole) is not None else None


class Difference(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One field in which two identities differ, or cannot be told to agree."""

    half: Side
    field: str
    mine: Value
    theirs: Value

    @property
    def is_unknown(self) -> bool:
        """Whether it is only not known that they agree."""
        return self.mine is None or self.theirs is None

    @property
    def item(self) -> str:
        """What differs as one thing, in either arm: a build, a model, a drafter, one flag..."""
        field = self.field.removeprefix(_OF_REFERENCE)
        first = field.partition(".")[0]
        return first if first in _ITEMS else field

    def __str__(self) -> str:
        mine, theirs = _apart(_text(self.mine), _text(self.theirs))
        if mine == theirs and not self.is_unknown:  # a text against the number that it spells
            mine, theirs = repr(self.mine), repr(self.theirs)
        return f"{self.field}: {mine} against {theirs}"


def place_of(measured: Measured) -> Half:
    """Where and how it was measured: machine, GPU, driver, denominator, instrument.

    The stream interval stands here, since a server that sends many tokens at once is stamped
    otherwise; so does who counted the tokens, where tokens are counted.
    """
    session = measured.session
    facts: dict[str, Value] = dict.fromkeys(CORE)
    facts |= machine_facts({} if session is None else session.place)
    facts["instrument"] = None if session is None else session.instrument
    facts |= _denominator_facts(measured.arm.denominator)
    facts["stream_interval"] = _stream_interval(measured.engine)
    if measured.arm.denominator.unit == "output_token":
        facts["tokens_from"] = _tokens_from(measured)
    return Half(side="place", facts=facts)


def place_of_pair(candidate: Measured, reference: Measured) -> Half:
    """Where a ratio was measured: both arms' places, and the factor they differ in."""
    facts = dict(place_of(candidate).facts)
    below = place_of(reference).facts
    facts |= {f"reference.{name}": value for name, value in below.items()}
    facts["factor"] = candidate.measurement.factor or NONE
    return Half(side="place", facts=facts)


def machine_facts(found: Mapping[str, Any]) -> dict[str, Value]:
    """A session's facts of its machine as plain values; memory in whole GiB, which stays put."""
    facts = {name: value for name, value in _flat(found) if name != "memory_bytes"}
    if "memory_bytes" in found:
        size = found["memory_bytes"]
        facts["memory_gib"] = round(size / _GIB) if isinstance(size, int | float) else None
    return facts


def subject_of(measured: Measured) -> Half:
    """What was measured: engine build, model, drafter, flags, environment and workload."""
    engine = measured.engine
    facts: dict[str, Value] = {}
    for part in (_build, _model, _drafter, _flags, _environment):
        facts |= part(engine)
    return Half(side="subject", facts=facts | _workload(measured))


def subject_of_pair(candidate: Measured, reference: Measured) -> Half:
    """What a ratio is of: both arms' subjects, the reference's under names of its own."""
    below = subject_of(reference).facts
    facts = dict(subject_of(candidate).facts)
    return Half(
        side="subject",
        facts=facts | {f"{_OF_REFERENCE}{name}": value for name, value in below.items()},
    )


def differences(mine: Half, theirs: Half) -> tuple[Difference, ...]:
    """Every field in which two halves differ or cannot be told to agree, sorted by name."""
    fields = sorted(mine.facts.keys() | theirs.facts.keys())
    return tuple(
        Difference(mine.side, field, mine.value(field), theirs.value(field))
        for field in fields
        if not _is_inside_unknown(field, mine, theirs)
        and not _is_equal(mine.value(field), theirs.value(field))
    )


def confounded(found: Iterable[Difference]) -> bool:
    """Whether more than one thing of the subject is known to differ.

    Facts of one build, model, drafter or workload are one thing; each flag is one of its own.
    """
    known = {each.item for each in found if each.half == "subject" and not each.is_unknown}
    return len(known) > 1


def denominator_id(denominator: Denominator) -> str:
    """What a number is counted over, with its formula; numbers of two ids are not comparable."""
    each = denominator
    streams = each.load_words if each.is_load else each.streams
    return f"{each.clock}, {each.unit}, {each.prefix}, {streams}: {each.formula}"


def ratio_id(candidate: Denominator, reference: Denominator, factor: str | None) -> str:
    """The same for the ratio of two arms."""
    above, below = denominator_id(candidate), denominator_id(reference)
    return f"({above}) / ({below}) by {factor or NONE}"


def digest(facts: Mapping[str, Value]) -> str:
    """A digest of facts by name, whatever their order."""
    text = json.dumps(dict(facts), sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _denominator_facts(denominator: Denominator) -> dict[str, Value]:
    each = denominator
    facts: dict[str, Value] = {
        "clock": each.clock,
        "unit": each.unit,
        "prefix": each.prefix,
        "streams": each.streams or NONE,
        "formula": each.formula,
    }
    # Only where there is a load: the digests of one stream stay what they were.
    return facts | ({"load": each.load_words} if each.is_load else {})


def _stream_interval(engine: record.Engine | None) -> Value:
    flags = _flag_table(engine)
    return None if flags is None else _plain(flags.get(_STREAM_INTERVAL, _ONE_BY_ONE))


def _tokens_from(measured: Measured) -> Value:
    """Whether the server or a tokenizer counted; ``None`` with no turn or an unknown source."""
    found = {each.tokens_from for each in measured.turns if each.completed}
    if not found or "unknown" in found:
        return None
    names = {"tokenizer" if each == "retokenised" else "server" for each in found}
    return ", ".join(sorted(names))


def _build(engine: record.Engine | None) -> dict[str, Value]:
    """Version, digest of installed files, and versions of installed packages where recorded."""
    subject = _subject(engine)
    stated = engine.facts.version if engine is not None else None
    packages = subject.get("packages")
    found = packages if isinstance(packages, Mapping) else {}
    return {
        "build.version": _plain(stated or subject.get("engine_version")),
        "build.files": _plain(subject.get("engine_files")),
        **{f"build.{name}": _plain(version) for name, version in found.items()},
    }


def _model(engine: record.Engine | None) -> dict[str, Value]:
    subject = _subject(engine)
    found = subject.get("model")
    source: dict[str, Value] = {"model.source": None}
    if isinstance(found, Mapping):
        source |= _described("model", found)
    elif found is not None:
        source["model.source"] = str(found)
    elif engine is not None and engine.attached:
        source["model.source"] = engine.served_model
    flags = _flag_table(engine) or {}
    stated = {f"model.{flag}": _plain(flags[flag]) for flag in _OF_MODEL if flag in flags}
    return source | {"model.digest": _plain(subject.get("model_digest"))} | stated


def _drafter(engine: record.Engine | None) -> dict[str, Value]:
    subject = _subject(engine)
    if "drafter" not in subject:
        return {"drafter": None}
    found = subject["drafter"]
    if found is None:
        facts: dict[str, Value] = {"drafter": NONE}
    elif isinstance(found, Mapping):
        facts = {"drafter": _GIVEN, **_described("drafter", found)}
    else:
        facts = {"drafter": _GIVEN, "drafter.source": str(found)}
    if found is not None:
        facts["drafter.digest"] = _plain(subject.get("drafter_digest"))
    flags = _flag_table(engine) or {}
    return facts | {f"drafter.{flag}": _plain(flags[flag]) for flag in _OF_DRAFTER if flag in flags}


def _described(item: str, found: Mapping[str, Any]) -> dict[str, Value]:
    """What a profile says of a model or drafter; what it leaves open is left to the digest."""
    said = {name: each for name, each in found.items() if each is not None}
    return {f"{item}.{name}": _plain(each) for name, each in said.items()}


def _flags(engine: record.Engine | None) -> dict[str, Value]:
    flags = _flag_table(engine)
    if flags is None:
        return {"flags": None}
    elsewhere = (*_OF_MODEL, *_OF_DRAFTER, _STREAM_INTERVAL)
    kept = {flag: value for flag, value in flags.items() if flag not in elsewhere}
    return {"flags": _GIVEN, **{f"flags.{flag}": _plain(value) for flag, value in kept.items()}}


def _environment(engine: record.Engine | None) -> dict[str, Value]:
    if engine is None or engine.attached:
        return {"environment": None}
    found = engine.environment
    return {"environment": _GIVEN, **{f"environment.{name}": found[name] for name in found}}


def _workload(measured: Measured) -> dict[str, Value]:
    """The workload's digest, and by name what people look for first."""
    facts: dict[str, Value] = {"workload.digest": measured.measurement.workload_digest or None}
    for name in ("temperature", "max_tokens", "content_class"):
        found = {value for each in measured.turns if (value := getattr(each, name)) is not None}
        if found:
            facts[f"workload.{name}"] = ", ".join(sorted(map(str, found)))
    return facts


def _subject(engine: record.Engine | None) -> Mapping[str, Any]:
    return {} if engine is None else engine.subject


def _flag_table(engine: record.Engine | None) -> Mapping[str, Any] | None:
    """The engine's flags by their long names; ``None`` where they are not known."""
    found = _subject(engine).get("flags")
    return found if isinstance(found, Mapping) else None


def _flat(found: Mapping[str, Any], path: str = "") -> Iterable[tuple[str, Value]]:
    for name, value in found.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{path}{name}.")
        else:
            yield f"{path}{name}", _plain(value)


def _plain(value: Any) -> Value:  # noqa: ANN401 - whatever JSON holds
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return json.dumps(value, sort_keys=True)


def _is_equal(mine: Value, theirs: Value) -> bool:
    """Known and the same; a flag that is true is not the number one."""
    is_same_kind = isinstance(mine, bool) is isinstance(theirs, bool)
    return mine is not None and mine == theirs and is_same_kind


def _is_inside_unknown(field: str, mine: Half, theirs: Half) -> bool:
    """Whether the field is one of several that a side does not know as a whole."""
    whole = field.partition(".")[0]
    if whole == field or not (whole in mine.facts or whole in theirs.facts):
        return False
    return mine.facts.get(whole) is None or theirs.facts.get(whole) is None


def _text(value: Value) -> str:
    return "unknown" if value is None else str(value)


def _apart(one: str, other: str) -> tuple[str, str]:
    """Both texts, long ones cut to the part in which they begin to differ."""
    if max(len(one), len(other)) <= _SHOWN:
        return one, other
    pairs = enumerate(zip(one, other, strict=False))
    alike = next((at for at, (mine, theirs) in pairs if mine != theirs), min(len(one), len(other)))
    start = 0 if alike < _SHOWN - _BEYOND else alike - _BEYOND
    return _cut(one, start), _cut(other, start)


def _cut(text: str, start: int) -> str:
    shown = text[start : start + _SHOWN]
    before, after = "..." if start else "", "..." if start + _SHOWN < len(text) else ""
    return f"{before}{shown}{after}"
