"""Tries one guide: compiles it, and follows it for some hundred tokens. Runs in a fork."""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random
from statistics import median
from typing import Any

import numpy as np

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
BITS = 32  # of a word of the mask


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
    found = _Walk(grammar).walk(RANDOM_TOKENS, _Walk.random_token)
    return found or _Walk(grammar).walk(COSTLY_TOKENS, _Walk.costly_token)


class _Walk:
    """Follows a guide from its beginning."""

    def __init__(self, grammar: Any) -> None:
        import xgrammar

        self._matcher = xgrammar.GrammarMatcher(grammar)
        vocab_size = grammar.tokenizer_info.vocab_size
        words = -(-vocab_size // BITS)
        self._mask = np.empty((1, words), dtype=np.int32)
        is_text = np.ones(words * BITS, dtype=np.uint8)
        is_text[[i for i in self._matcher.stop_token_ids if i < vocab_size]] = 0
        self._text_mask = np.packbits(is_text, bitorder="little").view(np.int32)
        self._random = Random(0)
        self._costs_s: list[float] = []

    def walk(self, tokens: int, choose: Callable[[_Walk], int]) -> str | None:
        """What is wrong with the guide; None if the walk found nothing."""
        began = time.thread_time()
        for step in range(tokens):
            cost_s = self._timed(self._matcher.fill_next_token_bitmask, self._mask)
            if not step and not self._mask.any():
                return "no text matches it"
            self._mask &= self._text_mask
            if not self._mask.any():
                return None
            token = choose(self)
            self._costs_s.append(cost_s + self._timed(self._matcher.accept_token, token))
            if self._is_costly():
                return AMBIGUOUS
            if step >= ENOUGH_TOKENS and time.thread_time() - began > ENOUGH_S:
                return None if self._recent_s() < TOKEN_S / 2 else AMBIGUOUS
        return None

    def random_token(self) -> int:
        """An allowed token. Unpacking a whole mask would take longer than filling it."""
        word = int(self._random.choice(np.flatnonzero(self._mask)))
        bits = int(self._mask[0, word])
        return word * BITS + self._random.choice([i for i in range(BITS) if bits >> i & 1])

    def costly_token(self) -> int:
        """The one of several random tokens after which the next mask takes longest."""
        costs = {self.random_token(): 0.0 for _ in range(CANDIDATES)}
        for token in costs:
            costs[token] = self._timed(self._matcher.accept_token, token)
            costs[token] += self._timed(self._matcher.fill_next_token_bitmask, self._mask)
            self._matcher.rollback(1)
        return max(costs, key=lambda token: costs[token])

    def _is_costly(self) -> bool:
        costs = self._costs_s
        if sum(costs) > BURST_S + TOKEN_S * len(costs):
            return True
        early_s = sum(costs[: 2 * WINDOW]) / (2 * WINDOW)
        return len(costs) >= 3 * WINDOW and self._recent_s() > max(GROWN_S, GROWTH * early_s)

    def _recent_s(self) -> float:
        """The median, so that one busy moment of the machine does not matter."""
        return median(self._costs_s[-WINDOW:])

    @staticmethod
    def _timed(call: Callable[[Any], Any], argument: Any) -> float:
        began = time.thread_time()
        call(argument)
        return time.thread_time() - began
