"""The records a run leaves, one frozen struct a kind, each one line of JSON.

Writing and reading files is in ``evidence``; judging them is in ``proof`` and ``verdict``.
Times ending in ``_ns`` are monotonic nanoseconds of the client's clock. ``None`` means that a
thing was not measured or did not happen; it is never replaced by zero.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from pytest_llmperf.denominator import Denominator
from pytest_llmperf.fitness import Canary, MachineState, Precondition

SCHEMA = 1
"""The number of this layout of evidence; a reader refuses any other."""

INSTRUMENT = 1
"""The version of how we stamp and count; numbers from two instruments are not comparable."""

Channel = Literal["content", "reasoning", "tool_call", "hidden"]
Role = Literal["prime", "warmup", "ramp", "turn"]
TokenSource = Literal["usage", "token_ids", "retokenised", "unknown"]
FailureKind = Literal[
    "connect",  # no connection could be made
    "reset",  # the connection broke before the first byte of the answer
    "interrupted",  # it broke in mid-stream
    "timeout",  # the whole request took longer than allowed
    "stalled",  # no event came for longer than allowed
    "refused",  # an HTTP status other than 2xx
    "server_error",  # an error event inside a 200 stream
    "protocol",  # bytes that break the protocol (negative usage step, bad JSON, ...)
    "no_token",  # it ended well without one generated token
    "incomplete",  # it ended without a finish reason or [DONE]
    "cancelled",  # we left
]


class _Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Shared settings of all records: frozen; an unknown field is an error, not ignored."""


class Stamps(_Record, frozen=True, kw_only=True):
    """When things happened to one request. A later stamp is never before an earlier one."""

    due_ns: int | None = None
    sent_ns: int | None = None
    """When the request's head began to be sent on a connection that was already open."""
    first_byte_ns: int | None = None
    """The answer's status line; a proxy may send it before the engine has the request."""
    first_event_ns: int | None = None
    """The first server-sent event of any kind; comments are no events."""
    first_token_ns: int | None = None
    """The first chunk that bears a generated token of any channel."""
    first_visible_ns: int | None = None
    """The first chunk with text in it of any channel (content, reasoning, tool call)."""
    first_answer_ns: int | None = None
    """The first chunk with content or a tool call: what is not reasoning."""
    last_token_ns: int | None = None
    """The last token-bearing chunk; never the usage chunk or ``[DONE]``."""
    closed_ns: int | None = None


class Chunk(_Record, frozen=True, kw_only=True):
    """One token-bearing chunk: when it was read, how many tokens it bore, on which channel."""

    at_ns: int
    tokens: int | None = None
    channel: Channel = "content"


class Usage(_Record, frozen=True, kw_only=True):
    """Token counts as the server reports them. ``cached_tokens`` unknown is ``None``, not 0."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None


class Failure(_Record, frozen=True, kw_only=True):
    """Why a request did not complete."""

    kind: FailureKind
    detail: str
    code: int | None = None
    """What an error event inside a 200 stream states as its HTTP status; ``None``: nothing."""


class Answerer(_Record, frozen=True, kw_only=True):
    """Who answered, as the answer itself says."""

    model: str | None = None
    response_id: str | None = None
    system_fingerprint: str | None = None


class Request(_Record, frozen=True, kw_only=True, tag_field="record", tag="request"):
    """Everything known of one request; a failed one is kept like any other."""

    request_id: str
    measurement_id: str | None = None
    arm: str | None = None
    boot_id: str | None = None
    role: Role = "turn"
    block: int | None = None
    """The block of the sampling plan this turn belongs to: turns in ABBA order, or, with many
    streams, one window of load for each arm."""
    stream: int | None = None
    """Which of several streams sent it, from 0; ``None`` where turns follow one another or
    arrive by a schedule."""
    attempt: int | None = None
    """Which try of one ask this is, from 1; ``None`` where nothing is sent again."""
    attempt_of: str | None = None
    """The ask that this is a try of; equal in all its tries, whichever server they went to."""
    position: int | None = None
    """Place in the order in which the measurement sent its requests, from 0."""
    prompt: str | None = None
    """Which prompt of the workload; equal in the arms that are paired by prompt."""
    prompt_digest: str | None = None
    content_class: str | None = None
    """What kind of output the prompt asks for: ``tool_call``, ``json``, ``code``, ``prose``..."""
    temperature: float | None = None
    max_tokens: int | None = None
    expected_cached_tokens: int | None = None
    """Hits that block size and drafter allow, from the common prefix; ``None`` if unknown."""
    common_prefix_tokens: int | None = None
    """Tokens this prompt shares with what was sent before it, by the server's tokenizer."""
    declared_prompt_tokens: int | None = None
    """The prompt's length as the workload states it; ``None`` where it states none."""
    url: str
    http_status: int | None = None
    failure: Failure | None = None
    finish_reason: str | None = None
    answered_by: Answerer = Answerer()
    stamps: Stamps = Stamps()
    usage: Usage = Usage()
    tokens_from: TokenSource = "unknown"
    chunks: tuple[Chunk, ...] = ()
    connect_ns: int | None = None
    """Duration of connection set-up, always outside ``sent`` to ``closed``; ``None`` if reused."""
    loop_lag_ns: int | None = None
    """99th percentile of how late the client's event loop ran during this request."""
    server_timings: dict[str, Any] | None = None
    """What the server says of its own timing; evidence only, never mixed with our stamps."""
    output_digest: str | None = None
    repetition: float | None = None
    """Share of the output's 4-grams of token ids that stood in it before (``repetition``)."""
    warnings: tuple[str, ...] = ()

    @property
    def completed(self) -> bool:
        """Whether the request ended as it should, with at least one token."""
        return self.failure is None


class Session(_Record, frozen=True, kw_only=True, tag_field="record", tag="session"):
    """The first line of every evidence file: who ran what, where."""

    schema: int = SCHEMA
    instrument: int = INSTRUMENT
    session_id: str
    started_at: str
    """UTC, ISO 8601."""
    plugin_version: str
    command: tuple[str, ...] = ()
    mode: str = "quick"
    profile: str | None = None
    configuration: dict[str, Any] | None = None
    """The whole profile, so that its engines can be booted again as a reference."""
    place: dict[str, Any] = {}
    """Facts of the machine. A fact that is unknown is ``None`` and never equals a known one."""


class Declared(_Record, frozen=True, kw_only=True):
    """What a profile promises of an engine; proof holds the evidence against it."""

    prefix_caching: bool | None = None
    speculation: str | None = None
    """The method of speculative decoding (``mtp``), ``None`` where the profile declares none."""
    draft_tokens: int | None = None
    """Tokens proposed a step; only with speculation."""


class Facts(_Record, frozen=True, kw_only=True):
    """What a running engine says of itself once it is ready."""

    version: str | None = None
    block_size: int | None = None
    """Tokens a prefix-cache block, as the server reports it (may differ from the flag)."""
    cache_blocks: int | None = None
    """Blocks of the KV cache; times ``block_size`` gives its capacity in tokens."""
    max_model_len: int | None = None
    metrics: bool | None = None
    """Whether the server has a metrics page that we can read."""
    tokenize: bool | None = None
    """Whether the server has a ``/tokenize`` endpoint."""
    token_ids: bool | None = None
    """Whether streaming answers carry token ids on request."""
    speculates: bool | None = None
    """Whether its metrics page counts drafts, whoever declared a drafter; ``None``: no page."""


class Engine(_Record, frozen=True, kw_only=True, tag_field="record", tag="engine"):
    """One boot of an engine, or one attachment to a server that somebody else runs."""

    boot_id: str
    name: str
    """The fixture's or factory's name: ``gemma``, ``gemma_autoregressive``..."""
    round: int = 0
    url: str
    metrics_url: str | None = None
    """Its metrics page, where that is not ``/metrics`` of ``url``."""
    served_model: str
    attached: bool = False
    profile: str | None = None
    command: tuple[str, ...] = ()
    environment: dict[str, str] = {}
    pid: int | None = None
    log: str | None = None
    declared: Declared = Declared()
    facts: Facts = Facts()
    subject: dict[str, Any] = {}
    """Engine build, model and drafter digests, flags: what differs is named and judged."""
    boot_s: float | None = None
    phases_s: dict[str, float] = {}


class EngineEnd(_Record, frozen=True, kw_only=True, tag_field="record", tag="engine_end"):
    """How an engine's life ended."""

    boot_id: str
    ending: Literal["stopped", "died"]
    exit_code: int | None = None
    detail: str | None = None
    at_ns: int | None = None
    """When the end was noticed; ``None`` if unknown: a death then counts for every measurement."""


class Arm(_Record, frozen=True, kw_only=True):
    """One side of a measurement: an engine under one declaration."""

    name: str
    """``candidate`` or ``reference``."""
    boot_id: str
    engine: str
    denominator: Denominator
    declared: Declared = Declared()


class Measurement(_Record, frozen=True, kw_only=True, tag_field="record", tag="measurement"):
    """The start of one measurement: what is about to be measured, for which gate, as planned."""

    measurement_id: str
    gate: str
    """Node id of the test, without the round."""
    call: int = 0
    """Which measurement of that test, from 0."""
    round: int = 0
    stage: Literal["judged", "confirm"] = "judged"
    """``confirm``: fresh boots of candidate and reference, after the gate was suspected."""
    attempt: int = 1
    """From 1; more where the machine was disturbed and the same boots were measured again."""
    arms: tuple[Arm, ...]
    factor: str | None = None
    """The one field in which two arms may differ; ``None`` with one arm, or with four."""
    factors: tuple[str, ...] = ()
    """The two fields in which the four cells of a factorial differ."""
    workload: str
    workload_digest: str
    turns: int
    """Turns planned for each arm, warm-up excluded."""
    windows: int | None = None
    """Windows of load into which they are divided; ``None`` where turns follow one another."""
    warmup: int = 0
    min_cached_share: float | None = None
    min_acceptance: float = 0.15


class Spent(_Record, frozen=True, kw_only=True):
    """A histogram's total, cumulative: seconds over all its observations, and how many."""

    sum_s: float
    count: float


class Spans(_Record, frozen=True, kw_only=True):
    """What the server says of where its requests' time went. ``None``: the page lacks it."""

    queue: Spent | None = None
    """Queued until first scheduled."""
    prefill: Spent | None = None
    """First scheduled until the first token."""
    decode: Spent | None = None
    """First until last token."""
    inference: Spent | None = None
    """First scheduled until the last token."""
    whole: Spent | None = None
    """Arrived until finished."""
    first_token: Spent | None = None
    """Arrived until the first token."""


class Counters(_Record, frozen=True, kw_only=True, tag_field="record", tag="counters"):
    """The server's own counters at one moment, by meaning. ``None``: the page lacks it."""

    measurement_id: str
    boot_id: str
    when: Literal["before", "during", "after"]
    asked_ns: int | None = None
    """When the page was asked for; the server wrote it between this and ``at_ns``."""
    at_ns: int
    readable: bool = True
    """False: the metrics page was absent, empty or malformed; ``problem`` says how."""
    problem: str | None = None
    prefix_queries: float | None = None
    """Prompt tokens looked up in the prefix cache, cumulative."""
    prefix_hits: float | None = None
    drafts: float | None = None
    """Drafting steps, cumulative."""
    draft_tokens: float | None = None
    accepted_tokens: float | None = None
    accepted_per_position: tuple[float, ...] | None = None
    prompt_tokens: float | None = None
    generation_tokens: float | None = None
    requests_finished: float | None = None
    requests_running: float | None = None
    requests_waiting: float | None = None
    preemptions: float | None = None
    spans: Spans = Spans()
    started_at: float | None = None
    """When the server's process started (Unix seconds), to notice a restart."""


class MeasurementEnd(_Record, frozen=True, kw_only=True, tag_field="record", tag="measurement_end"):
    """The end of one measurement; without this line it was cut short."""

    measurement_id: str
    completed: bool
    reason: str | None = None


class Part(_Record, frozen=True, kw_only=True):
    """Weights of one kind of a checkpoint, and what a decode step reads of them."""

    name: str
    elements: int
    stored: str
    """The dtype in the file: ``BF16``, ``F8_E4M3``..."""
    bytes_each: float
    """Of one element as the engine computes with it; ``--dtype float32`` makes 2 bytes 4."""
    share: float = 1.0
    """Of the elements that one token needs: active over all experts, else 1."""


class KvLayers(_Record, frozen=True, kw_only=True):
    """Attention layers of one kind: what each token before adds to a step's reading."""

    layers: int
    heads: int
    width: int
    window: int | None = None
    """Tokens that a sliding-window layer looks back; ``None``: all of them."""
    bytes_each: float


class Network(_Record, frozen=True, kw_only=True):
    """One checkpoint, by the headers of its files."""

    source: str
    parts: tuple[Part, ...]
    kv: tuple[KvLayers, ...]


class Weights(_Record, frozen=True, kw_only=True, tag_field="record", tag="weights"):
    """What one engine has to read of its checkpoints for each step."""

    boot_id: str
    target: Network | None = None
    drafter: Network | None = None
    problem: str | None = None
    """Why the bytes are not known; ``None`` where they are."""


class Streamed(_Record, frozen=True, kw_only=True):
    """One kernel of the probe: how fast it read or copied, repetition by repetition."""

    kernel: str
    threads: int | None = None
    """``None`` on a GPU."""
    bytes_per_s: tuple[float, ...]


class Bandwidth(_Record, frozen=True, kw_only=True, tag_field="record", tag="bandwidth"):
    """The memory bandwidth that a probe reached beside one measurement, its engines idle."""

    measurement_id: str
    boot_id: str
    """The engine in whose Python it ran."""
    device: str | None = None
    array_bytes: int | None = None
    cache_bytes: int | None = None
    """The last-level cache; the array is to be larger."""
    series: tuple[Streamed, ...] = ()
    engine_threads: int | None = None
    """Threads that the engine computes with; ``None``: as many as it likes, or a GPU."""
    problem: str | None = None
    """Why there is no bandwidth; ``None`` where there is."""


class Endpoint(_Record, frozen=True, kw_only=True, tag_field="record", tag="endpoint"):
    """One server in the order of a failover: its name looked up once, and what it was pinned to."""

    measurement_id: str
    boot_id: str
    place: int
    """Its place in the order, from 0."""
    url: str
    lookup_ns: int | None = None
    """How long the look-up of its name took; ``None`` where it is an address already."""
    addresses: tuple[str, ...] = ()
    """What the name stands for, in the order in which it was tried."""
    pinned: str | None = None
    """The address that took a connection; all requests go there. ``None``: none did."""
    connect_ns: int | None = None
    """From the first address tried until one took the connection."""
    problem: str | None = None


class Fault(_Record, frozen=True, kw_only=True, tag_field="record", tag="fault"):
    """What was done to a server on purpose while requests were under way."""

    measurement_id: str
    boot_id: str
    kind: Literal["killed", "frozen", "thawed"]
    begun_ns: int
    """Just before the first signal was sent."""
    at_ns: int
    """Just after the last one."""
    pids: tuple[int, ...] = ()
    """The processes that got it."""


Record = (
    Session
    | Engine
    | EngineEnd
    | Weights
    | Measurement
    | Counters
    | Request
    | MeasurementEnd
    | Bandwidth
    | Precondition
    | MachineState
    | Canary
    | Endpoint
    | Fault
)
"""Any line of an evidence file, told apart by its ``record`` field."""
