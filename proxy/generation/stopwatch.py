"""When things happened in a request's events. Called by service."""

from __future__ import annotations

import time
from dataclasses import replace

from triton_openai.proxy.domain.events import Finished, OutputEvent
from triton_openai.proxy.domain.output import Timing


class Stopwatch:
    """Runs from its making on."""

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self._first_token_s: float | None = None

    def seen(self, event: OutputEvent) -> OutputEvent:
        """The same event; a Finished tells how long it took."""
        elapsed_s = time.perf_counter() - self._began
        if self._first_token_s is None:
            self._first_token_s = elapsed_s
        if not isinstance(event, Finished):
            return event
        timing = Timing(first_token_s=self._first_token_s, total_s=elapsed_s)
        return replace(event, timing=timing)
