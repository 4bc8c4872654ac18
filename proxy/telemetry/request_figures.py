"""What telemetry knows of a request that has ended. Made by request_watcher."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from triton_openai.proxy.domain.output import Usage
from triton_openai.proxy.domain.timeline import Trace
from triton_openai.proxy.telemetry.stream_latency import RequestLatency


class Result(str, Enum):
    """REFUSED: an error that is the caller's, or a limit. FAILED: one of ours. ABANDONED: the
    client disconnected.
    """

    COMPLETED = "completed"
    REFUSED = "refused"
    FAILED = "failed"
    ABANDONED = "abandoned"


@dataclass(slots=True, kw_only=True)
class RequestFigures:
    """outcome: a finish reason, an error code, or `abandoned`. queue_s: the wait for a row, in the
    proxy and in the engine; None where the request did not get that far. usage: None if no token
    came. trace: of a sampled request only. Nobody changes one; see TokenDelta.
    """

    outcome: str
    result: Result
    duration_s: float
    first_event_s: float | None
    queue_s: float | None
    usage: Usage | None
    latency: RequestLatency
    trace: Trace | None
