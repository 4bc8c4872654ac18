"""What happened to one request: every part fills its record in while the request runs.

telemetry.request_log makes one for each request. The headers of its answer, its log line, metrics,
spans and usage are read from it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from enum import Enum
from random import getrandbits
from time import perf_counter, time_ns
from typing import Any, Protocol

from typing_extensions import Self

from proxy.domain.errors import SERVER_LIMIT, ErrorCode, ProxyError, RateLimited
from proxy.domain.events import Finished, OutputEvent
from proxy.domain.interrupt import Cause
from proxy.domain.model import NO_END, Lifecycle, ModelCard
from proxy.domain.output import EngineTimes, FinishReason, Timing, Usage
from proxy.domain.request import GenerationRequest
from proxy.domain.scheduling import Standing

MOST_STAGES = 64  # of one request, whatever its choices, retries and tools multiply to
MOST_ENDPOINTS = 8  # in the list of a record
SPAN_BITS, TRACE_BITS = 64, 128
FIRST_FAULT_STATUS = 500
ABANDONED = "abandoned"  # the outcome of a generation whose client disconnected
SERVER_FULL = "server_full"  # of one over MAX_CONCURRENT_REQUESTS, whose code callers' limits share
# Upper bounds of histograms of durations, one ladder for all, so that their quantiles compare.
DURATION_BUCKETS_S = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
    120.0,
    300.0,
    600.0,
)

Headers = Sequence[tuple[bytes, bytes]]


class StageName(str, Enum):
    """ACCESS: who the caller is. BODY: the body is read and checked. PLAN: deployment, template and
    guide. LIMITS: the caller's limits, and permits. IMAGES: they are fetched. GUIDE_CHECK: Triton
    tries a costly guide. QUEUE: the fair queue. WAIT: a lost stream waits for an endpoint. TRITON:
    one stream of one endpoint. ROUTING: the choice of that endpoint. The ENGINE ones are within it,
    as the engine timed them. TOOL: a tool that the server runs.
    """

    ACCESS = "access"
    BODY = "body"
    PLAN = "plan"
    LIMITS = "limits"
    IMAGES = "images"
    GUIDE_CHECK = "guide check"
    QUEUE = "queue"
    WAIT = "wait for an endpoint"
    TRITON = "triton"
    ROUTING = "routing"
    ENGINE_QUEUE = "engine queue"
    ENGINE_PREFILL = "prefill"
    ENGINE_DECODE = "decode"
    TOOL = "tool"


class Result(str, Enum):
    """What a generation was to its tenant. REFUSED: an error that is the caller's, or a limit.
    FAILED: one of ours. ABANDONED: the client disconnected.
    """

    COMPLETED = "completed"
    REFUSED = "refused"
    FAILED = "failed"
    ABANDONED = "abandoned"


@dataclass(slots=True, kw_only=True)
class Trace:
    """The place of a request in a distributed trace: W3C's ids, as numbers.

    span_id: of the request itself. parent_id: of the caller's span, if it named one. is_sampled:
    decided when the request began.
    """

    trace_id: int
    span_id: int
    parent_id: int | None = None
    is_sampled: bool = False
    state: str = ""  # `tracestate` of the caller, for our own spans


class TokenCount(Protocol):
    """Counts the tokens of one engine stream while they arrive."""

    @property
    def usage(self) -> Usage: ...


class Content(Protocol):
    """Keeps prompts and answer for the request's span."""

    def ask(self, request: GenerationRequest) -> None: ...

    def add(self, event: OutputEvent) -> None: ...


@dataclass(frozen=True, slots=True)
class Wait:
    """One engine stream that waits in the fair queue. Times are the event loop's."""

    standing: Standing
    since: float
    standing_at: float  # when the standing was computed

    @property
    def whole_s(self) -> float:
        """How long it will probably have waited in all."""
        return self.standing_at - self.since + (self.standing.wait_s or 0.0)


class Stage:
    """A part of a request, kept in its record from the beginning on. parent: the stage that it is
    within. began, ended: of time.perf_counter; `ended` is None while it runs.

    `with` ends it, and notes the class of an exception as its `error`.
    """

    __slots__ = ("attributes", "began", "ended", "error", "name", "parent", "record", "span_id")

    def __init__(
        self,
        name: StageName,
        record: RequestRecord,
        parent: Stage | None = None,
        began: float | None = None,
    ) -> None:
        self.name = name
        self.record = record
        self.parent = parent
        self.began = perf_counter() if began is None else began
        self.ended: float | None = None
        self.error: str | None = None
        self.attributes: dict[str, Any] = {}
        self.span_id = 0
        if len(record.stages) < MOST_STAGES and record.ended is None:
            record.stages.append(self)
        else:
            record.dropped += 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and issubclass(kind, Exception):
            self.error = kind.__name__
        if self.ended is None:
            self.ended = perf_counter()

    def end(self, at: float | None = None) -> None:
        """The first end counts."""
        if self.ended is None:
            self.ended = perf_counter() if at is None else at

    @property
    def duration_s(self) -> float:
        """So far, or in all: a stage without an end ends with its request."""
        return (self.ended or self.record.ended or perf_counter()) - self.began

    @property
    def traceparent(self) -> str | None:
        """W3C's header for what is called in this stage; None if the request is not sampled."""
        trace = self.record.trace
        if trace is None or not trace.is_sampled:
            return None
        self.span_id = self.span_id or new_id(SPAN_BITS)
        return f"00-{trace.trace_id:032x}-{self.span_id:016x}-01"


@dataclass(slots=True, kw_only=True, eq=False)
class RequestRecord:
    """One request, of whatever protocol. A request generates at most once.

    Holds nothing large: it may live for longer than the request.
    """

    # The request. request_id: of the header x-request-id; empty where the answer has none.
    # request_trace: the caller's own, of the header x-request-trace.
    method: str = ""
    path: str = ""
    operation: str | None = None  # its name in OpenTelemetry's conventions
    request_id: str = ""
    headers: Headers = ()  # names in lower case
    request_trace: str | None = None
    trace: Trace | None = None
    # Its caller; None before it is known, or where neither a key nor the request names a tenant.
    tenant: str | None = None
    key_id: str | None = None

    # Where the caller stands: access.limits.caller_meters.Standings; None without limits.
    standings: Any = None

    # Where its time went. The times are of time.perf_counter, began_ns is Unix time.
    began: float = field(default_factory=perf_counter)
    began_ns: int = field(default_factory=time_ns)
    ended: float | None = None
    stages: list[Stage] = field(default_factory=list)
    dropped: int = 0  # how many stages were not kept

    # The answer. error: the code of its error, in the middle of a stream, too.
    status: int | None = None
    error: str | None = None
    has_failed: bool = False  # the stream ends with an error, though its status was 200
    is_private: bool = False  # the caller asked that the answer is not stored
    # Fields of the domain -> their names in the request's protocol, for errors.
    field_names: Callable[[], Mapping[str, str]] = dict
    idempotency: str | None = None  # what became of its Idempotency-Key
    content: Content | None = None  # None where its span has no messages
    # Comments for a streamed answer; whoever sends them removes them.
    notes: list[str] = field(default_factory=list)

    # What it asks of a model. prompt_tokens: also of a request that only counts them.
    id: str | None = None  # of the answer, such as chatcmpl-…
    model: str | None = None
    prompt_tokens: int | None = None
    unenforced: tuple[str, ...] = ()  # keywords of the caller's schema that nothing enforces
    lifecycle: Lifecycle = NO_END  # of the model
    fallback_from: str | None = None  # see GenerationRequest
    priority: int | None = None  # its class, where it named one or its caller has a ceiling below 0
    capped_priority: int | None = None  # the caller's ceiling, where it asked for more
    clamped_max_tokens: int | None = None  # what it got, where it asked for more
    dropped_tools: tuple[str, ...] = ()  # see GenerationRequest

    # Its generation. What stands from has_generated on is set when that has ended.
    generation_began: float = 0.0
    first_event_s: float | None = None  # since generation_began
    finish: FinishReason | None = None  # of the choice that ended last
    has_generated: bool = False
    outcome: str = ABANDONED  # or SERVER_FULL, a finish reason, an error code
    result: Result = Result.ABANDONED
    generation_s: float = 0.0
    used: Usage | None = None  # None if no token came
    user: str | None = None
    safety_identifier: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    # Hints that its template does not read, then see Sampling.without_effect.
    without_effect: tuple[str, ...] = ()

    # Its engine streams, of every choice, attempt and round of tools.
    attempts: int | None = None  # the most of one choice; None where no answer is checked
    counts: list[TokenCount] = field(default_factory=list)  # one for each
    endpoints: list[str] = field(default_factory=list)  # those that sent tokens
    resends: int = 0  # of streams, and trials of guides, that Triton lost before it answered
    # How often another engine stream was to continue one that had begun, and how often a stream
    # gave its row to a higher class.
    continued: int = 0
    continued_by: str | None = None  # the last time: `ids` or `text`
    preempted: int = 0
    # Of streams that were in fact continued: why, and the seconds without an engine.
    pauses: list[tuple[Cause, float]] = field(default_factory=list)
    uncontinued: list[Cause] = field(default_factory=list)  # of those that had begun
    # The streams that wait in the fair queue now, by their reader; and what the one that waited
    # longest has waited in all, None if none waited.
    waits: dict[object, Wait] = field(default_factory=dict)
    queue_s: float | None = None
    # Of each stream: its wait in the engine, and its times there, if the engine reports them.
    engine_queues_s: list[float] = field(default_factory=list)
    engine_times: list[EngineTimes] = field(default_factory=list)
    # The gaps between two responses in each of DURATION_BUCKETS_S, and above the last; their sum.
    gaps: list[int] = field(default_factory=lambda: [0] * (len(DURATION_BUCKETS_S) + 1))
    gaps_s: float = 0.0
    # Of each stream with more than one response: the mean time of a token after the first.
    token_times_s: list[float] = field(default_factory=list)
    # What engines made and no answer has: tokens behind a stop string, and what still comes of
    # streams that were stopped.
    unused_tokens: int = 0
    late: list[tuple[Stage, Awaitable[Usage]]] = field(default_factory=list)
    # Tokens that an engine counted and nobody is charged for, by why.
    uncharged: dict[str, int] = field(default_factory=dict)

    @property
    def charged_late(self) -> list[Awaitable[Usage]]:
        """What another stream does not continue, which makes the same tokens again."""
        return [late for stage, late in self.late if stage.error is None]

    def leave_uncharged(self, why: str, tokens: int) -> None:
        """why: `choices` or `thought`, whose prompt is charged once; or a Cause's value."""
        if tokens:
            self.uncharged[why] = self.uncharged.get(why, 0) + tokens

    def passed(self, name: StageName, began: float, error: BaseException | None = None) -> None:
        """Notes a stage that ends now. began: of time.perf_counter. error: what ended it early."""
        stage = Stage(name, self, began=began)
        stage.ended = perf_counter()
        if isinstance(error, Exception):
            stage.error = type(error).__name__

    def end(self) -> None:
        """Later stages are not kept: a generation may run on for the next reader of its answer."""
        self.ended = perf_counter()

    @property
    def duration_s(self) -> float:
        """So far, or in all."""
        return (self.ended or perf_counter()) - self.began

    def seconds(self) -> dict[str, float]:
        """The time of each kind of stage, added up: stages of several choices overlap."""
        found: dict[str, float] = {}
        for stage in self.stages:
            name = stage.name.value
            found[name] = found.get(name, 0.0) + stage.duration_s
        return found

    def timed(self, event: OutputEvent) -> OutputEvent:
        """Notes an event of the answer. Returns the same; a Finished gets its timing."""
        if self.first_event_s is None:
            self.first_event_s = perf_counter() - self.generation_began
        if isinstance(event, Finished):
            self.finish = event.reason
            total_s = perf_counter() - self.generation_began
            timing = Timing(first_token_s=self.first_event_s, total_s=total_s)
            event = replace(event, timing=timing)
        if self.content is not None:
            self.content.add(event)
        return event

    def end_generation(
        self, request: GenerationRequest, card: ModelCard, error: BaseException | None
    ) -> None:
        """error: what ended it early."""
        self.generation_s = perf_counter() - self.generation_began
        self.id, self.model = request.id, card.name
        self.user, self.safety_identifier = request.user, request.safety_identifier
        self.metadata = request.metadata
        self.tenant = request.tenant or self.tenant
        self.without_effect += request.sampling.without_effect(card.sampling)
        self.used = self.usage
        self.has_generated, self.counts = True, []  # a count refers to its record
        if self.used is not None:
            self.prompt_tokens = self.used.prompt_tokens
        if isinstance(error, Exception):
            code = error.code if isinstance(error, ProxyError) else ErrorCode.INTERNAL_ERROR
            is_ours = code.status >= FIRST_FAULT_STATUS
            self.outcome, self.result = code.value, Result.FAILED if is_ours else Result.REFUSED
            if isinstance(error, RateLimited) and error.limit == SERVER_LIMIT:
                self.outcome = SERVER_FULL
        elif self.finish is not None:
            self.outcome, self.result = self.finish.value, Result.COMPLETED

    @property
    def usage(self) -> Usage | None:
        """The tokens that all engine streams have sent so far; None before the first one."""
        if self.has_generated:
            return self.used
        usage = sum((count.usage for count in self.counts), start=Usage())
        return usage if usage.total_tokens else None

    def add_endpoint(self, endpoint: str) -> None:
        """One that sent tokens."""
        if endpoint not in self.endpoints and len(self.endpoints) < MOST_ENDPOINTS:
            self.endpoints.append(endpoint)

    @property
    def queued(self) -> Standing | None:
        """The best position of its streams that wait; None where none waits."""
        if not self.waits:
            return None
        standings = (wait.standing for wait in self.waits.values())
        return min(standings, key=lambda standing: standing.position, default=None)

    @property
    def queued_since(self) -> float | None:
        """When the one that waits longest began to wait."""
        if not self.waits:
            return None
        return min((wait.since for wait in self.waits.values()), default=None)

    @property
    def expected_wait_s(self) -> float:
        """The longest that one of its streams will probably have waited."""
        return max((wait.whole_s for wait in self.waits.values()), default=0.0)

    @property
    def row_wait_s(self) -> float | None:
        """The wait for a row, in the proxy and in the engine; None where neither reports any.

        In the engine the longest counts: streams of one request mostly wait at the same time.
        """
        if not self.engine_queues_s:
            return self.queue_s
        return (self.queue_s or 0.0) + max(self.engine_queues_s)


current_record: ContextVar[RequestRecord | None] = ContextVar("current_record", default=None)
"""Of the request that the running task works for."""


def running_record() -> RequestRecord:
    """The running request's; outside of one, a new one that nobody reads."""
    return current_record.get() or RequestRecord()


def stage(name: StageName) -> Stage:
    """Begins a stage of the running request."""
    return Stage(name, current_record.get() or RequestRecord())


def new_id(bits: int) -> int:
    """Random, and not 0, which W3C calls invalid."""
    return getrandbits(bits) or 1
