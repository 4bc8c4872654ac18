"""`echo_prompt`: reports the prompt's tokens before the answer, if wanted with probabilities."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from port import Token, TokenLogProbs
from sampling.log_probs import log_probs
from sampling.ranking import Logits

ROWS_AT_ONCE = 32  # of logits; each needs a copy of a vocabulary


class PromptEcho:
    """`log_probs`: None for none, else the number of alternatives for each token."""

    def __init__(self, prompt_ids: Sequence[int], log_probs: int | None) -> None:
        self._ids = prompt_ids
        self._top = log_probs
        # The first token follows nothing, so it has no probability. Its alternatives are
        # placeholders, because every token must have the same number of them.
        self._scores = [TokenLogProbs(math.nan, ((-1, -math.inf),) * (log_probs or 0))]

    @property
    def unscored_from(self) -> int | None:
        """The first token whose logits are still needed; None: all may come from the cache."""
        if self._top is None or len(self._scores) == len(self._ids):
            return None
        return len(self._scores) - 1

    def score(self, logits: Logits, start: int) -> None:
        """Scores the tokens from `start` on. logits: [tokens, vocab], not changed."""
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
        """The prompt's tokens, once all of them are scored."""
        if self._top is None:
            return [Token(token) for token in self._ids]
        return [Token(*pair) for pair in zip(self._ids, self._scores, strict=True)]
