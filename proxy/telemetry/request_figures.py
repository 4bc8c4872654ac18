"""What telemetry knows of a request that has ended. Made by request_watcher."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from proxy.domain.output import Usage
from proxy.domain.timeline import Trace
from proxy.telemetry.stream_latency import RequestLatency


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
    proxy and in the engine; None where neither reports any. usage: None if no token came. trace: of
    a sampled request only. Nobody changes one; see TokenDelta.
    """

    outcome: str
    result: Result
    duration_s: float
    first_event_s: float | None
    queue_s: float | None
    usage: Usage | None
    latency: RequestLatency
    trace: Trace | None

    @property
    def waited_s(self) -> float | None:
        """For metrics: 0 for a request that got a row at once; None for one that got none."""
        return 0.0 if self.queue_s is None and self.first_event_s is not None else self.queue_s
