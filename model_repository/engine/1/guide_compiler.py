"""Guides -> compiled guides, off the decode loop: in threads, cached, one compile for all who ask.

xgrammar compiles without the GIL, so a hard guide costs the decode loop nothing but CPU.
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

from grammar_library import load_xgrammar
from grammars import compile_guide, reason
from port import Guide

logger = logging.getLogger(__name__)

FIRST = Guide(kind="json", text="")
START_TIMEOUT_S = 120.0  # half a second of CPU time, on a machine as busy as it may be


class GuideError(Exception):
    """The guide cannot be compiled; the message is the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledGuide:
    """What a GuideState starts from; many may start from one. `grammar` is xgrammar's."""

    grammar: Any
    size_bytes: int


class GuideCompiler:
    """Safe for any number of threads. Nothing is imported before `start`, or the first guide."""

    def __init__(self, info_file: Path, *, cache_bytes: int, threads: int) -> None:
        """`info_file` is the guide.json that `build` writes. `threads`: compiles at a time."""
        self._info_file = info_file
        self._cache_bytes = cache_bytes
        self._used_bytes = 0
        self._cache: OrderedDict[Guide, Future[CompiledGuide]] = OrderedDict()
        self._lock = threading.RLock()
        self._library_lock = threading.Lock()
        self._compiler: Any = None
        self._first: Future[CompiledGuide] | None = None
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="guides")

    def start(self) -> None:
        """Begins to make the first guide as quick as the later ones. Returns at once."""
        self._first = self.compile(FIRST)

    def wait_until_started(self) -> None:
        """Returns when guides can be compiled, or are found not to be.

        The second is logged, and no reason to serve nothing: a request with a guide tries again
        and fails with the reason, one without a guide does not notice.
        """
        if self._first is None:
            return
        try:
            self._first.result(START_TIMEOUT_S)
        except FutureTimeout:
            logger.error("guides cannot be compiled after %g s: they have to wait", START_TIMEOUT_S)
        except Exception as error:
            logger.error("requests with guides will fail: %s: %s", type(error).__name__, error)

    def compile(self, guide: Guide) -> Future[CompiledGuide]:
        """Returns at once. The future is shared by all who ask for this guide: do not cancel it.

        Its exception is a GuideError; any other one is a fault of ours.
        """
        with self._lock:
            future = self._cache.get(guide)
            if future is None:
                future = self._cache[guide] = self._pool.submit(self._compile, guide)
                future.add_done_callback(partial(self._settle, guide))
            else:
                self._cache.move_to_end(guide)
            return future

    def close(self) -> None:
        """Waiting compiles are cancelled; running ones end unheard."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _compile(self, guide: Guide) -> CompiledGuide:
        compiler = self._loaded()
        try:
            grammar = compile_guide(compiler, guide.kind, guide.text)
        except Exception as error:  # xgrammar raises RuntimeError, ValueError, MemoryError ...
            raise GuideError(reason(error)) from error
        size = grammar.memory_size_bytes + len(guide.text)
        return CompiledGuide(grammar=grammar, size_bytes=size)

    def _loaded(self) -> Any:
        with self._library_lock:
            if self._compiler is None:
                xgrammar = load_xgrammar()
                info = xgrammar.TokenizerInfo.deserialize_json(
                    self._info_file.read_text(encoding="utf-8")
                )
                self._compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)
            return self._compiler

    def _settle(self, guide: Guide, future: Future[CompiledGuide]) -> None:
        """Counts a compiled guide, then forgets the least recently used ones over the limit."""
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
