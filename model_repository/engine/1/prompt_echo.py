"""A prompt's own tokens, sent ahead of the answer, with log-probabilities where they are wanted."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from log_probs import log_probs
from port import Token, TokenLogProbs
from ranking import Logits

ROWS_AT_ONCE = 32  # of logits; each takes a copy of a vocabulary


class PromptEcho:
    """`log_probs`: None for none, else how many alternatives each token has."""

    def __init__(self, prompt_ids: Sequence[int], log_probs: int | None) -> None:
        self._ids = prompt_ids
        self._top = log_probs
        # Nothing comes before the first token, so it has no probability; its alternatives are
        # there to be as many as the others'.
        self._scores = [TokenLogProbs(math.nan, ((-1, -math.inf),) * (log_probs or 0))]

    @property
    def unscored_from(self) -> int | None:
        """The first token whose logits are still needed; None: the cache may have all of them."""
        if self._top is None or len(self._scores) == len(self._ids):
            return None
        return len(self._scores) - 1

    def score(self, logits: Logits, start: int) -> None:
        """logits: [tokens, vocab], of the tokens from `start` on; they are left as they are."""
        first = self.unscored_from
        if self._top is None or first is None:
            return
        last = min(start + len(logits), len(self._ids) - 1)
        for at in range(first, last, ROWS_AT_ONCE):
            end = min(at + ROWS_AT_ONCE, last)
            rows = logits[at - start : end - start]
            following = np.array(self._ids[at + 1 : end + 1], np.int64)
            self._scores += log_probs(rows, rows.max(axis=1), following, [self._top] * len(rows))

    def tokens(self) -> list[Token]:
        """When all of them are scored."""
        if self._top is None:
            return [Token(token) for token in self._ids]
        return [Token(*pair) for pair in zip(self._ids, self._scores, strict=True)]
