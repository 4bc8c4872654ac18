"""Times a request's events. Used by the service."""

from __future__ import annotations

import time
from dataclasses import replace

from proxy.domain.events import Finished, OutputEvent
from proxy.domain.generation import Report
from proxy.domain.output import Timing


class Stopwatch:
    """Runs from its making on, and writes into the request's report."""

    __slots__ = ("_began", "_report")

    def __init__(self, report: Report) -> None:
        self._began = time.perf_counter()
        self._report = report

    def timed(self, event: OutputEvent) -> OutputEvent:
        """The same event; a Finished gets its timing."""
        report = self._report
        if report.first_event_s is None:
            report.first_event_s = time.perf_counter() - self._began
        if not isinstance(event, Finished):
            return event
        report.finish = event.reason
        total_s = time.perf_counter() - self._began
        return replace(event, timing=Timing(first_token_s=report.first_event_s, total_s=total_s))
