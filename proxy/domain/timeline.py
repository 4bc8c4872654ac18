"""Where the time of one request went. Every part adds its stages while it works; telemetry reads
them when the request has ended.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from enum import Enum
from random import getrandbits
from time import perf_counter, time_ns
from typing import Any

from typing_extensions import Self

MOST_STAGES = 64  # of one request, whatever its choices, retries and tools multiply to
SPAN_BITS, TRACE_BITS = 64, 128


class StageName(str, Enum):
    """ACCESS: who the caller is. BODY: the body is read and checked. PLAN: deployment, template and
    guide. LIMITS: the caller's limits, and permits. GUIDE_CHECK: Triton tries a costly guide.
    QUEUE: the fair queue. WAIT: a lost stream waits for an endpoint. TRITON: one stream of one
    endpoint. ROUTING: the choice of that endpoint. The ENGINE ones are within it, as the engine
    timed them. TOOL: a tool that the server runs.
    """

    ACCESS = "access"
    BODY = "body"
    PLAN = "plan"
    LIMITS = "limits"
    GUIDE_CHECK = "guide check"
    QUEUE = "queue"
    WAIT = "wait for an endpoint"
    TRITON = "triton"
    ROUTING = "routing"
    ENGINE_QUEUE = "engine queue"
    ENGINE_PREFILL = "prefill"
    ENGINE_DECODE = "decode"
    TOOL = "tool"


@dataclass(slots=True)
class Trace:
    """The place of a request in a distributed trace: W3C's ids, as numbers.

    span_id: of the request itself. parent_id: of the caller's span, if it named one. is_sampled:
    decided when the request began.
    """

    trace_id: int
    span_id: int
    parent_id: int | None
    is_sampled: bool
    state: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """What was asked and answered, as bytes. held: how many are counted until it is written. lost:
    why both are missing.
    """

    body: bytes = b""
    answer: bytes = b""
    held: int = 0
    lost: str | None = None


class Stage:
    """A part of a request. began, ended: of time.perf_counter; `ended` is None while it runs.

    `with` ends it, and notes the class of an exception as its `error`. A timeline of None keeps
    nothing.
    """

    __slots__ = ("attributes", "began", "ended", "error", "name", "parent", "span_id", "timeline")

    def __init__(
        self,
        name: StageName,
        timeline: Timeline | None,
        parent: Stage | None = None,
        began: float | None = None,
    ) -> None:
        self.name = name
        self.timeline = timeline
        self.parent = parent
        self.began = perf_counter() if began is None else began
        self.ended: float | None = None
        self.error: str | None = None
        self.attributes: dict[str, Any] = {}
        self.span_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and issubclass(kind, Exception):
            self.error = kind.__name__
        self.end()

    def end(self, at: float | None = None) -> None:
        """The first end counts."""
        if self.ended is None:
            self.ended = perf_counter() if at is None else at

    def stage(self, name: StageName, began: float | None = None) -> Stage:
        """Begins a stage within this one."""
        if self.timeline is None:
            return Stage(name, None)
        return self.timeline.stage(name, self, began)

    @property
    def traceparent(self) -> str | None:
        """W3C's header for what is called in this stage; None if the request is not sampled."""
        trace = None if self.timeline is None else self.timeline.trace
        if trace is None or not trace.is_sampled:
            return None
        self.span_id = self.span_id or new_id(SPAN_BITS)
        return f"00-{trace.trace_id:032x}-{self.span_id:016x}-01"


class Timeline:
    """Collects the stages of one request.

    began: when it began, of time.perf_counter. began_ns: the same moment in Unix time.
    dropped: how many stages were not kept. exchange: only where spans have it.
    """

    __slots__ = ("began", "began_ns", "dropped", "ended", "exchange", "stages", "trace")

    def __init__(self, trace: Trace | None = None) -> None:
        self.began, self.began_ns = perf_counter(), time_ns()
        self.ended: float | None = None
        self.stages: list[Stage] = []
        self.dropped = 0
        self.exchange: Exchange | None = None
        self.trace = trace

    def stage(
        self, name: StageName, parent: Stage | None = None, began: float | None = None
    ) -> Stage:
        """Begins a stage."""
        begun = Stage(name, self, parent, began)
        if len(self.stages) < MOST_STAGES and self.ended is None:
            self.stages.append(begun)
        else:
            self.dropped += 1
        return begun

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
            ended = stage.ended or self.ended or perf_counter()
            found[stage.name.value] = found.get(stage.name.value, 0.0) + ended - stage.began
        return found


current_timeline: ContextVar[Timeline | None] = ContextVar("current_timeline", default=None)


def stage(name: StageName) -> Stage:
    """Begins a stage of the running request; outside of one it is not kept."""
    timeline = current_timeline.get()
    return Stage(name, None) if timeline is None else timeline.stage(name)


def new_id(bits: int) -> int:
    """Random, and not 0, which W3C calls invalid."""
    return getrandbits(bits) or 1
