"""Compiles guides in threads next to the decode loop, each guide once, and caches them.

xgrammar compiles without the GIL, so a hard guide costs the decode loop only CPU time.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from grammars.compilation import compile_guide, reason
from grammars.xgrammar_loader import grammar_compiler
from port import Guide

logger = logging.getLogger(__name__)

WARM_UP = Guide(kind="json", text="")
START_TIMEOUT_S = 120.0  # half a second of CPU time, even on a very busy machine


class GuideError(Exception):
    """The guide cannot be compiled; the message is the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledGuide:
    """What a GuideState starts from; many may share one. `grammar` is xgrammar's."""

    grammar: Any
    size_bytes: int


class GuideCompiler:
    """Safe for any number of threads. Imports xgrammar at `start`, or with the first guide."""

    def __init__(self, info_file: Path, *, cache_bytes: int, threads: int) -> None:
        """`info_file` is the guide.json that `build` writes; `threads` compile at once."""
        self._info_file = info_file
        self._cache_bytes = cache_bytes
        self._used_bytes = 0
        self._cache: OrderedDict[Guide, Future[CompiledGuide]] = OrderedDict()
        self._lock = threading.RLock()
        self._library_lock = threading.Lock()
        self._compiler: Any = None
        self._warm_up: Future[CompiledGuide] | None = None
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="guides")

    def start(self) -> None:
        """Begins a warm-up, so that the first guide is as fast as later ones. Returns at once."""
        self._warm_up = self.compile(WARM_UP)

    def wait_until_started(self) -> None:
        """Waits for the warm-up, and logs its failure.

        A failure does not stop the engine: only requests with guides fail, each with the reason.
        """
        if self._warm_up is None:
            return
        try:
            self._warm_up.result(START_TIMEOUT_S)
        except FutureTimeout:
            logger.error(
                "the guide compiler is not ready after %g s: requests with guides will wait for it",
                START_TIMEOUT_S,
            )
        except Exception as error:
            logger.error("requests with guides will fail: %s: %s", type(error).__name__, error)

    def compile(self, guide: Guide) -> Future[CompiledGuide]:
        """Returns at once. Callers with equal guides share the future, so do not cancel it.

        Its exception is a GuideError; any other exception is a fault of the server.
        """
        with self._lock:
            future = self._cache.get(guide)
            if future is None:
                future = self._cache[guide] = self._pool.submit(self._compile, guide)
                future.add_done_callback(partial(self._account, guide))
            else:
                self._cache.move_to_end(guide)
            return future

    def close(self) -> None:
        """Cancels the compiles that wait, and ignores the results of running ones."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _compile(self, guide: Guide) -> CompiledGuide:
        compiler = self._loaded_compiler()
        try:
            grammar = compile_guide(compiler, guide.kind, guide.text)
        except Exception as error:  # xgrammar raises RuntimeError, ValueError, MemoryError ...
            raise GuideError(reason(error)) from error
        size = grammar.memory_size_bytes + len(guide.text)
        return CompiledGuide(grammar=grammar, size_bytes=size)

    def _loaded_compiler(self) -> Any:
        with self._library_lock:
            if self._compiler is None:
                self._compiler = grammar_compiler(self._info_file)
            return self._compiler

    def _account(self, guide: Guide, future: Future[CompiledGuide]) -> None:
        """Counts a compiled guide, and evicts the least recently used ones over the limit."""
        with self._lock:
            if future.cancelled() or future.exception() is not None:
                del self._cache[guide]
                return
            self._used_bytes += future.result().size_bytes
            for old, done in list(self._cache.items()):
                if self._used_bytes <= self._cache_bytes:
                    return
                if done.done():
                    del self._cache[old]
                    self._used_bytes -= done.result().size_bytes
