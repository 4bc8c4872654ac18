"""The ports to telemetry, which watches requests and their engine streams."""

from __future__ import annotations

from typing import Protocol

from proxy.domain.engine import EngineRequest
from proxy.domain.generation import Report
from proxy.domain.interrupt import Cause
from proxy.domain.model import ModelCard
from proxy.domain.output import TokenDelta
from proxy.domain.request import GenerationRequest


class StreamWatch(Protocol):
    """Sees the deltas of one engine stream."""

    def see(self, delta: TokenDelta) -> None:
        """Called with every delta as it arrives. Costs less than a microsecond."""
        ...


class RequestWatch(Protocol):
    """Watches one request, which runs as long as the `with`; an exception ends it as failed."""

    def __enter__(self) -> RequestWatch: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None: ...

    def stream(self, request: EngineRequest) -> StreamWatch:
        """For one of the request's engine streams."""
        ...


class Watcher(Protocol):
    def begin(self, request: GenerationRequest, card: ModelCard, report: Report) -> RequestWatch:
        """`report`: the service's, read when the request has ended."""
        ...

    def resent(self, card: ModelCard) -> None:
        """A stream of the running request is sent to the engine again."""
        ...

    def continued(self, card: ModelCard, cause: Cause, pause_s: float) -> None:
        """A stream of the running request has the next token of another engine stream.

        pause_s: since the one before ended.
        """
        ...

    def not_continued(self, card: ModelCard, cause: Cause) -> None:
        """A stream of the running request that had begun ends with an error."""
        ...
