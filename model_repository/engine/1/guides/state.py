"""The position of one sequence in its guide, and the mask of the tokens that may follow.

Following a token and filling the next mask may take long for an ambiguous grammar. GuideWorkers
does both next to the decode loop, and charges the CPU time to the state.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from guides.compiler import CompiledGuide
from port import RESUME_PARAM, BadParameter, Guide

BITS = 32
# The CPU time that a guide may take: once, and for each token. Sound guides take a tenth of a
# millisecond a token, or one to two with a vocabulary of 150,000 tokens.
BURST_S, TOKEN_S = 0.5, 0.005
# How long all steps together may wait for the guide's masks; see GuideMask.
PATIENCE_S, PATIENCE_A_TOKEN_S = 0.1, 0.001
# A replay of 256 tokens takes a quarter of a millisecond, in which xgrammar holds the GIL. Then a
# pause lets the decode loop have it.
REPLAY_AT_ONCE, REPLAY_PAUSE_S = 256, 0.001


class GuideBroken(Exception):
    """A sampled token is not allowed by the guide: a fault of the server."""


class GuideTooSlow(Exception):
    """A replay has taken more CPU time than the guide may."""


class GuideState:
    """Begins before the first output token. It survives preemption: it depends on tokens only.

    The decode loop calls `take`, one worker at a time calls `work`. Between the two calls the
    state is due: its mask is not yet that of the next token.
    """

    def __init__(self, compiled: CompiledGuide) -> None:
        words = -(-compiled.grammar.tokenizer_info.vocab_size // BITS)
        self.mask: npt.NDArray[np.int32] = np.zeros((1, words), dtype=np.int32)
        self.is_terminated = False  # an end token was accepted: the sequence is over
        self.is_ready = self.is_running = False
        self.error: Exception | None = None
        self.spent_s = 0.0  # CPU time
        self.waited_s = 0.0  # by steps
        self.last_s = 0.0  # CPU time of the last mask
        self._compiled = compiled
        self._matcher: Any = None
        self._stop_ids: frozenset[int] = frozenset()
        self._next_token: int | None = None  # taken, not followed yet
        self._tokens = 0

    @property
    def is_due(self) -> bool:
        return not (self.is_ready or self.is_running or self.is_terminated)

    @property
    def is_unready(self) -> bool:
        """Whether its next token cannot be sampled yet."""
        return not (self.is_ready or self.is_terminated)

    @property
    def patience_s(self) -> float:
        """How long steps may still wait for it."""
        return PATIENCE_S + PATIENCE_A_TOKEN_S * self._tokens - self.waited_s

    def is_too_slow(self, running_s: float = 0.0) -> bool:
        """Whether it took more CPU time than it may. `running_s`: CPU time of the current work."""
        return self.spent_s + running_s > BURST_S + TOKEN_S * self._tokens

    def take(self, token_id: int) -> None:
        """Takes a sampled token, also the end token; a worker then follows it.

        Raises:
            GuideBroken: the mask does not allow the token, or the sequence is over.
        """
        word, bit = divmod(token_id, BITS)
        if self.is_terminated or not (self.is_ready and self.mask[0, word] >> bit & 1):
            raise GuideBroken(f"token {token_id} does not follow the guide")
        self.is_terminated = token_id in self._stop_ids
        self._next_token, self.is_ready = token_id, False
        self._tokens += 1

    def replay(self, token_ids: Sequence[int], is_over: Callable[[], bool]) -> None:
        """Follows the tokens of an answer that was begun before. Call it before all others.

        It may take long, so call it in a thread of its own. Ends early once `is_over`.

        Raises:
            BadParameter: the guide does not allow a token.
            GuideTooSlow: following the tokens has taken too much CPU time.
        """
        self._start()
        for start in range(0, len(token_ids), REPLAY_AT_ONCE):
            if is_over():
                return
            began = time.thread_time()
            self._replay_some(token_ids[start : start + REPLAY_AT_ONCE])
            self.spent_s += time.thread_time() - began
            if self.is_too_slow():
                raise GuideTooSlow
            time.sleep(REPLAY_PAUSE_S)

    def work(self) -> None:
        """Follows the token that was taken, fills `mask`, and stores any error in `error`."""
        began = time.thread_time()
        try:
            self._follow()
            self._matcher.fill_next_token_bitmask(self.mask)
        except Exception as error:
            self.error = error
        self.last_s = time.thread_time() - began
        self.spent_s += self.last_s
        self.is_ready = True  # first, so that it is never due in between
        self.is_running = False

    def _start(self) -> None:
        if self._matcher is None:
            from xgrammar import GrammarMatcher

            self._matcher = GrammarMatcher(self._compiled.grammar)
            self._stop_ids = frozenset(self._matcher.stop_token_ids)

    def _replay_some(self, token_ids: Sequence[int]) -> None:
        for token in token_ids:
            if not self._matcher.accept_token(token):
                raise BadParameter(
                    RESUME_PARAM,
                    f"the generated token {token} at position {self._tokens} does not follow "
                    "the guide",
                )
            self._tokens += 1
        self.is_terminated = token_ids[-1] in self._stop_ids

    def _follow(self) -> None:
        self._start()
        token, self._next_token = self._next_token, None
        if token is not None and not self._matcher.accept_token(token):
            raise GuideBroken(f"token {token} does not follow the guide")


def slow_refusal(guide: Guide) -> str:
    """The error message for the client whose guide takes too long to follow."""
    return (
        f"the {guide.kind} guide takes too long to follow token by token, so the engine stopped "
        "the answer. The guide is ambiguous: the same text matches it in many different ways. "
        "Write it without rules that refer to themselves on both sides, and without nested "
        "repetitions."
    )
