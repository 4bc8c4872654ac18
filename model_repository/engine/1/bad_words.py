"""Token sequences that are never completed, and which tokens would complete one now."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

# By a word's second last token, then by the length of what comes before its last token: the last
# tokens, by what comes before. So a step hashes one tuple for each length, however many words.
Endings = defaultdict[int, defaultdict[int, defaultdict[tuple[int, ...], list[int]]]]


class BadWords:
    """A word of one token is banned always, a longer one where the sequence ends in its start."""

    def __init__(
        self, words: Sequence[tuple[int, ...]], prompt_ids: Sequence[int], vocab_size: int
    ) -> None:
        """Words that end in a token outside the vocabulary cannot be completed."""
        possible = [word for word in words if 0 <= word[-1] < vocab_size]
        self._single = _ids(word[0] for word in possible if len(word) == 1)
        self._endings: Endings = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
        for word in possible:
            if len(word) > 1:
                self._endings[word[-2]][len(word) - 1][word[:-1]].append(word[-1])
        longest = max((len(word) for word in possible), default=0)
        self._tail = deque(prompt_ids[-longest:], maxlen=max(longest - 1, 0))

    def append(self, token_id: int) -> None:
        self._tail.append(token_id)

    def banned(self) -> npt.NDArray[np.int64]:
        by_length = self._endings.get(self._tail[-1]) if self._tail else None
        if by_length is None:
            return self._single
        tail = tuple(self._tail)
        found = [
            token
            for length, by_start in by_length.items()
            for token in by_start.get(tail[-length:], ())
        ]
        return np.concatenate([self._single, _ids(found)]) if found else self._single


def _ids(token_ids: Iterable[int]) -> npt.NDArray[np.int64]:
    return np.fromiter(token_ids, np.int64)
