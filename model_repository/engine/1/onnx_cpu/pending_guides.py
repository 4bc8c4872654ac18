"""Sequences whose guides are being compiled, or follow what was generated before."""

from __future__ import annotations

import contextlib
import queue
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Protocol

from guides.compiler import CompiledGuide
from guides.state import GuideState
from onnx_cpu.sequence import Sequence
from port import Guide

# Not the threads that compile: a guide that is slow to follow must not delay those.
REPLAY_THREADS = 2


class Compiler(Protocol):
    """Compiles guides next to the decode loop; see GuideCompiler."""

    def compile(self, guide: Guide) -> Future[CompiledGuide]: ...


class PendingGuides:
    """Other threads queue their results, so that a step need not look at every sequence."""

    def __init__(self, compiler: Compiler) -> None:
        self._compiler = compiler
        self._replays = ThreadPoolExecutor(REPLAY_THREADS, thread_name_prefix="guide-replay")
        self._done: queue.SimpleQueue[tuple[Sequence, GuideState | Exception]] = queue.SimpleQueue()

    def add(self, sequence: Sequence) -> None:
        """Starts to compile the sequence's guide, if it has one."""
        if (guide := sequence.job.input.guide) is not None:
            self._compiler.compile(guide).add_done_callback(partial(self._compiled, sequence))

    def take(self) -> list[tuple[Sequence, Exception | None]]:
        """The sequences whose guides became ready or failed since the last call, with the error.

        Sets the guide of a sequence without an error. Skips sequences that have ended meanwhile.
        """
        found: list[tuple[Sequence, Exception | None]] = []
        while not self._done.empty():
            sequence, outcome = self._done.get()
            if sequence.is_gone:
                continue
            if isinstance(outcome, Exception):
                found.append((sequence, outcome))
            else:
                sequence.guide = outcome
                found.append((sequence, None))
        return found

    def close(self) -> None:
        self._replays.shutdown(wait=False, cancel_futures=True)

    def _compiled(self, sequence: Sequence, compiled: Future[CompiledGuide]) -> None:
        """In the compiling thread, or in the scheduler's if the guide was compiled before."""
        try:
            state = GuideState(compiled.result())
        except Exception as error:
            self._done.put((sequence, error))
            return
        if not sequence.job.input.generated_ids:
            self._done.put((sequence, state))
            return
        with contextlib.suppress(RuntimeError):  # closed: every sequence has ended
            self._replays.submit(self._replay, sequence, state)

    def _replay(self, sequence: Sequence, state: GuideState) -> None:
        try:
            state.replay(sequence.job.input.generated_ids, lambda: sequence.is_gone)
        except Exception as error:
            self._done.put((sequence, error))
        else:
            self._done.put((sequence, state))
