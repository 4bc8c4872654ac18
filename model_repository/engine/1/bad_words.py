"""Token sequences that are never completed, and which tokens would complete one now."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence


class BadWords:
    """A word of one token is banned always, a longer one where the sequence ends in its start."""

    def __init__(self, words: Sequence[tuple[int, ...]], prompt_ids: Sequence[int]) -> None:
        self._single = [word[0] for word in words if len(word) == 1]
        self._by_previous: defaultdict[int, list[tuple[int, ...]]] = defaultdict(list)
        for word in words:
            if len(word) > 1:
                self._by_previous[word[-2]].append(word)
        longest = max((len(word) for word in words), default=0)
        self._tail = deque(prompt_ids, maxlen=max(longest - 1, 0))

    def append(self, token_id: int) -> None:
        self._tail.append(token_id)

    def banned(self) -> list[int]:
        words = self._by_previous.get(self._tail[-1], ()) if self._tail else ()
        if not words:
            return self._single
        tail = tuple(self._tail)
        starts = [word for word in words if tail[1 - len(word) :] == word[:-1]]
        return self._single + [word[-1] for word in starts]
