"""Several observers of requests as one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from proxy.domain.timeline import Timeline, Trace
from proxy.telemetry.request_log import Headers, RequestObserver


class Observers:
    """Implements request_log.RequestObserver. The first that has a place for a request decides."""

    def __init__(self, *observers: RequestObserver | None) -> None:
        self._observers = [observer for observer in observers if observer is not None]

    def trace(self, headers: Headers) -> Trace | None:
        found = (observer.trace(headers) for observer in self._observers)
        return next((trace for trace in found if trace is not None), None)

    def ended(self, timeline: Timeline, line: Mapping[str, Any]) -> None:
        for observer in self._observers:
            observer.ended(timeline, line)
