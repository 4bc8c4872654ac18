"""Which tokens a sequence holds and how often it generated each: what penalties look at."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt


class SeenTokens:
    """Grows by one token at constant cost; kept as two arrays beside each other, without gaps."""

    def __init__(self, prompt_ids: Iterable[int]) -> None:
        unique = list(dict.fromkeys(prompt_ids))
        self._slots = {token_id: slot for slot, token_id in enumerate(unique)}
        self._ids = np.zeros(2 * len(unique) + 64, np.int64)
        self._ids[: len(unique)] = unique
        self._counts = np.zeros(len(self._ids), np.float32)

    def append(self, token_id: int) -> None:
        slot = self._slots.setdefault(token_id, len(self._slots))
        if slot == len(self._ids):
            self._ids = np.concatenate([self._ids, np.zeros_like(self._ids)])
            self._counts = np.concatenate([self._counts, np.zeros_like(self._counts)])
        self._ids[slot] = token_id
        self._counts[slot] += 1

    @property
    def ids(self) -> npt.NDArray[np.int64]:
        """Every token of the sequence once."""
        return self._ids[: len(self._slots)]

    @property
    def counts(self) -> npt.NDArray[np.float32]:
        """How often each of `ids` was generated: 0 where it only stands in the prompt."""
        return self._counts[: len(self._slots)]
