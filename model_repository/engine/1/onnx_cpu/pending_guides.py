"""Sequences whose guides are being compiled."""

from __future__ import annotations

import queue
from concurrent.futures import Future
from functools import partial
from typing import Protocol

from guides.compiler import CompiledGuide
from guides.state import GuideState
from onnx_cpu.sequence import Sequence
from port import Guide


class Compiler(Protocol):
    """Compiles guides next to the decode loop; see GuideCompiler."""

    def compile(self, guide: Guide) -> Future[CompiledGuide]: ...


class PendingGuides:
    """The compiling threads queue their results, so that a step need not look at every sequence."""

    def __init__(self, compiler: Compiler) -> None:
        self._compiler = compiler
        self._done: queue.SimpleQueue[tuple[Sequence, Future[CompiledGuide]]] = queue.SimpleQueue()

    def add(self, sequence: Sequence) -> None:
        """Starts to compile the sequence's guide, if it has one."""
        if (guide := sequence.job.input.guide) is not None:
            self._compiler.compile(guide).add_done_callback(partial(self._finished, sequence))

    def take(self) -> list[tuple[Sequence, Exception | None]]:
        """The sequences whose compiles have ended since the last call, each with its error.

        Sets the guide of a sequence without an error. Skips sequences that have ended meanwhile.
        """
        found: list[tuple[Sequence, Exception | None]] = []
        while not self._done.empty():
            sequence, compiled = self._done.get()
            if sequence.is_gone:
                continue
            try:
                sequence.guide = GuideState(compiled.result())
                found.append((sequence, None))
            except Exception as error:
                found.append((sequence, error))
        return found

    def _finished(self, sequence: Sequence, compiled: Future[CompiledGuide]) -> None:
        self._done.put((sequence, compiled))
