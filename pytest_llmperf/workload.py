"""What is asked of an engine: named sources of planned requests, and nonces that keep them cold.

In which order they are sent is in ``plan``; sending one is in ``client``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from pytest_llmperf.errors import UsageError
from pytest_llmperf.planned import PlannedRequest

_NONCE_DIGITS = 12
_PRIMER_TOKENS = 4
_SHOWN = 24

Built = TypeVar("Built", bound="Prompts | Conversations")


def nonce(seed: int, kind: str, index: int) -> str:
    """Return ``[request DDDDDDDDDDDD]``, the same for the same seed, kind and index.

    It stands before the system prompt, so that nothing after it can be a cached prefix. It always
    has 12 decimal digits: tokenizers that split numbers into digits give every nonce one length.
    """
    drawn = hashlib.sha256(f"{seed}/{kind}/{index}".encode()).digest()
    return f"[request {int.from_bytes(drawn) % 10**_NONCE_DIGITS:0{_NONCE_DIGITS}d}]"


class Prompts(msgspec.Struct, frozen=True, kw_only=True):
    """Independent requests. A source that is run through starts again, under fresh nonces.

    Raises ``UsageError`` where there is no request, or their content classes differ.
    """

    name: str
    items: tuple[PlannedRequest, ...]

    def __post_init__(self) -> None:
        _refuse_empty(self.name, "request", self.items)
        _content_class(self.name, self.items)

    @property
    def content_class(self) -> str | None:
        """What kind of output the prompts ask for."""
        return _content_class(self.name, self.items)

    @property
    def digest(self) -> str:
        """SHA-256 of everything that is sent, nonces and model names left out."""
        return _digest("prompts", [_canonical(item) for item in self.items])

    def plain(self, index: int) -> PlannedRequest:
        """The request with this number as it stands: what a prefix cache holds of it is open."""
        number = index % len(self.items)
        return msgspec.structs.replace(self.items[number], prompt=f"{self.name}/{number}")

    def cold(self, index: int, fresh: str) -> PlannedRequest:
        """The same request with a nonce before its first word, so that nothing of it is cached."""
        return _headed(self.plain(index), fresh)


class Conversations(msgspec.Struct, frozen=True, kw_only=True):
    """A few live conversations, and last messages that each of them can go on with.

    :param histories: each a request whose messages end before the turn that is to be measured.
    :param branches: last user messages of equal length, none extending another. The first one is
        never measured: it primes the cache. Equal words and letters are checked here; equal
        tokens are known only to the server.

    Raises ``UsageError`` where there is nothing to measure, where branches differ in length or
    repeat, or where the histories' content classes differ.
    """

    name: str
    histories: tuple[PlannedRequest, ...]
    branches: tuple[str, ...]

    def __post_init__(self) -> None:
        _refuse_empty(self.name, "conversation", self.histories)
        _content_class(self.name, self.histories)
        _check_branches(self.name, self.branches)

    @property
    def content_class(self) -> str | None:
        """What kind of output the last messages ask for."""
        return _content_class(self.name, self.histories)

    @property
    def digest(self) -> str:
        """SHA-256 of everything that is sent, nonces and model names left out."""
        histories = [_canonical(history) for history in self.histories]
        return _digest("conversations", [*histories, msgspec.json.encode(self.branches)])

    def prime(self, conversation: int, live: str) -> PlannedRequest:
        """What fills the cache with a conversation: its history and the branch not measured."""
        primer = self._request(conversation, 0, live)
        return msgspec.structs.replace(primer, max_tokens=_PRIMER_TOKENS)

    def turn(self, conversation: int, branch: int, head: str) -> PlannedRequest:
        """A conversation continued by one branch; cold or cached as its nonce is fresh or live."""
        return self._request(conversation, branch, head)

    def _request(self, conversation: int, branch: int, head: str) -> PlannedRequest:
        history = self.histories[conversation]
        last = {"role": "user", "content": self.branches[branch]}
        continued = msgspec.structs.replace(
            history,
            prompt=f"{self.name}/{conversation}/{branch}",
            messages=(*history.messages, last),
        )
        return _headed(continued, head)


Workload = Prompts | Conversations
"""Any source of requests that a measurement understands."""


def unchanging(build: Callable[[], Built]) -> Built:
    """Build a workload twice and return it, if both say the same.

    Raises ``UsageError`` naming the first difference: a date, a random id or an unordered set in
    a prompt breaks the cached prefix from there on, and makes two runs incomparable.
    """
    first, second = build(), build()
    if first.digest == second.digest:
        return first
    raise UsageError(
        f"The workload {first.name!r} is not the same when it is built twice.",
        _first_difference(_spoken(first), _spoken(second))
        if not _is_private(first)
        else "Its words are private, so that the first difference is not shown.",
        "Take dates, random ids and unordered sets out of its prompts, or fix them to one value.",
    )


def difference(left: PlannedRequest, right: PlannedRequest) -> str | None:
    """Where what is sent of two requests first differs, in words; ``None`` where it does not."""
    if _canonical(left) == _canonical(right):
        return None
    return _first_difference(_canonical(left).decode(), _canonical(right).decode())


def _is_private(workload: Prompts | Conversations) -> bool:
    items = workload.items if isinstance(workload, Prompts) else workload.histories
    return any(each.private for each in items)


def _headed(request: PlannedRequest, head: str) -> PlannedRequest:
    """Put a line before the first word of a request."""
    if request.endpoint == "completions":
        return msgspec.structs.replace(request, text=f"{head}\n{request.text}")
    first, *rest = request.messages
    content = first.get("content") or ""
    line = {"type": "text", "text": f"{head}\n"}
    headed = f"{head}\n{content}" if isinstance(content, str) else [line, *content]
    return msgspec.structs.replace(request, messages=({**first, "content": headed}, *rest))


def _canonical(request: PlannedRequest) -> bytes:
    """What is sent, in one form, to whichever model."""
    return msgspec.json.encode(request.body("", token_ids=False), order="deterministic")


def _digest(kind: str, parts: Sequence[bytes]) -> str:
    whole = hashlib.sha256(kind.encode())
    for part in parts:
        whole.update(hashlib.sha256(part).digest())
    return whole.hexdigest()


def _content_class(name: str, requests: Sequence[PlannedRequest]) -> str | None:
    classes = {request.content_class for request in requests}
    if len(classes) == 1:
        return classes.pop()
    listed = ", ".join(sorted(map(repr, classes)))
    raise UsageError(
        f"The workload {name!r} mixes {len(classes)} content classes.",
        f"They are {listed}; how well a drafter guesses depends on the class.",
        "Make one workload for each class.",
    )


def _refuse_empty(name: str, what: str, requests: Sequence[PlannedRequest]) -> None:
    if not requests:
        raise UsageError(
            f"The workload {name!r} holds no {what}.",
            f"Its sequence of {what}s is empty.",
            f"Give it at least one {what}.",
        )


def _check_branches(name: str, branches: Sequence[str]) -> None:
    if len(branches) < 2:  # noqa: PLR2004 - one that primes and one that is measured
        raise UsageError(
            f"The workload {name!r} has {len(branches)} branches.",
            "The first branch primes the cache and is never measured.",
            "Give it at least two last messages.",
        )
    for branch in branches[1:]:
        if _size(branch) != _size(branches[0]):
            raise UsageError(
                f"The workload {name!r} has branches of different length.",
                f"{_sized(branches[0])}, {_sized(branch)}.",
                "Word the last messages so that they differ in words, not in length.",
            )
    repeated = sorted({branch for branch in branches if branches.count(branch) > 1})
    if repeated:
        raise UsageError(
            f"The workload {name!r} says the same branch twice.",
            f"{repeated[0]!r} stands {branches.count(repeated[0])} times; its second turn would be "
            "cached to its last word, which is not what a next turn is.",
            "Word each last message differently.",
        )


def _size(text: str) -> tuple[int, int]:
    return len(text.split()), len(text)


def _sized(text: str) -> str:
    words, letters = _size(text)
    return f"{text!r} has {words} words and {letters} characters"


def _spoken(workload: Prompts | Conversations) -> str:
    return msgspec.json.encode(workload, order="deterministic").decode()


def _first_difference(left: str, right: str) -> str:
    at = next(
        (index for index, (a, b) in enumerate(zip(left, right, strict=False)) if a != b),
        min(len(left), len(right)),
    )
    start = max(0, at - _SHOWN)
    shown = (text[start : at + _SHOWN] for text in (left, right))
    return "First difference: {!r} against {!r}.".format(*shown)
