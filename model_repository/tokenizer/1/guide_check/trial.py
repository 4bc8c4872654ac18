"""Tries one guide: compiles it, and follows it for some hundred tokens. Runs in a fork."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from grammars.compilation import compile_guide, reason

RANDOM_TOKENS = 256
# A costly walk takes the costliest of some candidates, which keeps most readings of the text alive.
CANDIDATES, COSTLY_TOKENS = 3, 96
# The CPU time that following a guide may take. Sound guides take a tenth of a millisecond a token,
# or one to two with a vocabulary of 150,000 tokens, and the last token costs as much as the first.
BURST_S, TOKEN_S = 0.25, 0.005
GROWN_S, GROWTH, WINDOW = 0.002, 6.0, 16
ENOUGH_S, ENOUGH_TOKENS = 0.25, 64  # for a walk without a result
AMBIGUOUS = "it is too ambiguous to follow token by token: a text matches it in many ways"
Ids = npt.NDArray[np.int64]
Choose = Callable[["_Walk", Ids], int]


def try_out(compiler: Any, kind: str, text: str, compiled: Callable[[], None]) -> str | None:
    """Why the guide cannot be used; None if it can. Calls `compiled` when it is.

    Raises:
        MemoryError: it needs too much memory.
    """
    try:
        grammar = compile_guide(compiler, kind, text)
        compiled()
        return walk_error(grammar)
    except Exception as error:
        if "std::bad_alloc" in str(error):
            raise MemoryError from error
        if isinstance(error, MemoryError):
            raise
        return reason(error)


def walk_error(grammar: Any) -> str | None:
    """Finds guides that compile quickly but cost more and more time for each token."""
    random = np.random.default_rng(0)
    found = _Walk(grammar).walk(RANDOM_TOKENS, lambda _, ids: int(random.choice(ids)))
    return found or _Walk(grammar).walk(
        COSTLY_TOKENS, lambda walk, ids: walk.costliest(random.choice(ids, CANDIDATES))
    )


class _Walk:
    """Follows a guide from its beginning."""

    def __init__(self, grammar: Any) -> None:
        import xgrammar

        self._matcher = xgrammar.GrammarMatcher(grammar)
        vocab_size = grammar.tokenizer_info.vocab_size
        self._mask = np.empty((1, -(-vocab_size // 32)), dtype=np.int32)
        self._stop_ids = [i for i in self._matcher.stop_token_ids if i < vocab_size]
        self._costs_s: list[float] = []

    def walk(self, tokens: int, choose: Choose) -> str | None:
        """What is wrong with the guide; None if the walk found nothing."""
        began = time.thread_time()
        for step in range(tokens):
            cost_s = self._timed(self._matcher.fill_next_token_bitmask, self._mask)
            bits = np.unpackbits(self._mask.view(np.uint8).ravel(), bitorder="little")
            if not step and not bits.any():
                return "no text matches it"
            bits[self._stop_ids] = 0
            ids = np.flatnonzero(bits)
            if not len(ids):
                return None
            token = choose(self, ids)
            self._costs_s.append(cost_s + self._timed(self._matcher.accept_token, token))
            if self._is_costly():
                return AMBIGUOUS
            if step >= ENOUGH_TOKENS and time.thread_time() - began > ENOUGH_S:
                return None if self._recent_s() < TOKEN_S / 2 else AMBIGUOUS
        return None

    def costliest(self, ids: Ids) -> int:
        """The token that makes the next mask take longest."""
        costs: dict[int, float] = {}
        for token in set(ids.tolist()):
            costs[token] = self._timed(self._matcher.accept_token, token)
            costs[token] += self._timed(self._matcher.fill_next_token_bitmask, self._mask)
            self._matcher.rollback(1)
        return max(costs, key=lambda token: costs[token])

    def _is_costly(self) -> bool:
        costs = self._costs_s
        if sum(costs) > BURST_S + TOKEN_S * len(costs):
            return True
        recent_s = self._recent_s()
        early_s = sum(costs[: 2 * WINDOW]) / (2 * WINDOW)
        return len(costs) >= 3 * WINDOW and recent_s > max(GROWN_S, GROWTH * early_s)

    def _recent_s(self) -> float:
        """The median, so that one busy moment of the machine does not matter."""
        return float(np.median(self._costs_s[-WINDOW:]))

    @staticmethod
    def _timed(call: Callable[[Any], Any], argument: Any) -> float:
        began = time.thread_time()
        call(argument)
        return time.thread_time() - began
