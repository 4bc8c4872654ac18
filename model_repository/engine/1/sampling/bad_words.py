"""`bad_words`: sequences of tokens that are never completed."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence

import numpy as np

from sampling.ranking import Logits
from sampling.restrictions import TokenIds, as_array, ban

# The last tokens of words, by the word's second last token, then by the number of tokens before
# the last one, then by those tokens. So a step hashes one tuple for each length, however many
# words there are.
Endings = defaultdict[int, defaultdict[int, defaultdict[tuple[int, ...], list[int]]]]


class BadWords:
    """See edits.LogitEdit.

    A word of one token is always banned. The last token of a longer word is banned if the sequence
    ends in the tokens before it.
    """

    def __init__(
        self, words: Sequence[tuple[int, ...]], last_ids: Sequence[int], vocab_size: int
    ) -> None:
        """`last_ids`: of the sequence so far, as many as the longest word has.

        Ignores words that end in a token outside the vocabulary: they cannot be completed.
        """
        possible = [word for word in words if word and 0 <= word[-1] < vocab_size]
        self._single = as_array(word[0] for word in possible if len(word) == 1)
        self._endings: Endings = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
        for word in possible:
            if len(word) > 1:
                self._endings[word[-2]][len(word) - 1][word[:-1]].append(word[-1])
        longest = max((len(word) for word in possible), default=0)
        self._tail = deque(last_ids, maxlen=max(longest - 1, 0))

    def apply(self, row: Logits) -> None:
        ban(row, self.banned())

    def append(self, token_id: int) -> None:
        self._tail.append(token_id)

    def banned(self) -> TokenIds:
        """The tokens that would complete a word now."""
        by_length = self._endings.get(self._tail[-1]) if self._tail else None
        if by_length is None:
            return self._single
        tail = tuple(self._tail)
        found = [
            token
            for length, by_start in by_length.items()
            for token in by_start.get(tail[-length:], ())
        ]
        return np.concatenate([self._single, as_array(found)]) if found else self._single
