"""How far one sequence has come in its guide, and which tokens may follow, for a whole batch."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from guide_compiler import CompiledGuide

ALL = np.int32(-1)
BITS = 32
PARALLEL_PAYS_S = 0.0005  # starting the threads costs 0.1 ms a step


class GuideBroken(Exception):
    """A token was sampled that the guide does not allow: an error of ours."""


class GuideState:
    """Begins before the first output token. It outlives preemption: it depends on tokens only."""

    def __init__(self, compiled: CompiledGuide) -> None:
        from xgrammar import GrammarMatcher

        self.matcher: Any = GrammarMatcher(compiled.grammar)
        self.is_terminated = False  # an end token was accepted: the sequence is over

    def accept(self, token_id: int) -> None:
        """Takes the sampled token, also the end token.

        Raises:
            GuideBroken: the mask did not allow it, or the sequence is over.
        """
        if self.is_terminated or not self.matcher.accept_token(token_id):
            raise GuideBroken(f"token {token_id} does not follow the guide")
        self.is_terminated = self.matcher.is_terminated()


class GuideMask:
    """Which tokens each row of a batch may go on with. For one thread."""

    def __init__(self, vocab_size: int, *, threads: int) -> None:
        """`vocab_size` is the width of the logits, which guide.json was made with."""
        self._words = -(-vocab_size // BITS)
        self._buffer = np.full((0, self._words), ALL, dtype=np.int32)
        self._threads = threads
        self._matchers: dict[int, Any] = {}
        self._last_s = 0.0

    def fill(self, states: Sequence[GuideState | None]) -> npt.NDArray[np.int32] | None:
        """[rows, ceil(vocab_size / 32)], token t allowed where bit t % 32 of word t // 32 is set.

        Rows without a guide are all ones, as are those whose guide is terminated; None where
        there are only such. A row of zeros is a dead end: no token of the vocabulary can follow.
        The array is valid until the next call.
        """
        guided = [
            (row, state.matcher)
            for row, state in enumerate(states)
            if state is not None and not state.is_terminated
        ]
        if not guided:
            return None
        if len(states) > len(self._buffer):
            self._buffer = np.empty((len(states), self._words), dtype=np.int32)
        mask = self._buffer[: len(states)]
        if len(guided) < len(states):
            mask.fill(ALL)
        start = time.perf_counter()
        batch = self._batch(self._threads if self._last_s > PARALLEL_PAYS_S else 1)
        batch.batch_fill_next_token_bitmask(
            [matcher for _, matcher in guided], mask, [row for row, _ in guided]
        )
        self._last_s = time.perf_counter() - start
        return mask

    def _batch(self, threads: int) -> Any:
        if threads not in self._matchers:
            from xgrammar import BatchGrammarMatcher

            self._matchers[threads] = BatchGrammarMatcher(threads)
        return self._matchers[threads]
