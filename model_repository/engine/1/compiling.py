"""Sequences that wait for their guides to compile."""

from __future__ import annotations

import queue
from concurrent.futures import Future
from functools import partial

from guide_compiler import CompiledGuide
from guide_state import GuideState
from sequence import Sequence


class Compiling:
    """Compiles that end are queued by their own thread, so that nobody looks at all of them."""

    def __init__(self) -> None:
        self._done: queue.SimpleQueue[tuple[Sequence, Future[CompiledGuide]]] = queue.SimpleQueue()

    def add(self, sequence: Sequence, guide: Future[CompiledGuide]) -> None:
        guide.add_done_callback(partial(self._arrived, sequence))

    def take(self) -> list[tuple[Sequence, Exception | None]]:
        """Sequences whose compile has ended since the last time, and why it failed if it did.

        A sequence that is over by now is forgotten.
        """
        found: list[tuple[Sequence, Exception | None]] = []
        while not self._done.empty():
            sequence, guide = self._done.get()
            if sequence.is_gone:
                continue
            try:
                sequence.guide, sequence.guide_to_come = GuideState(guide.result()), None
                found.append((sequence, None))
            except Exception as error:
                found.append((sequence, error))
        return found

    def _arrived(self, sequence: Sequence, guide: Future[CompiledGuide]) -> None:
        self._done.put((sequence, guide))
