"""`seed`: the random numbers of one sequence. The n-th depends on the seed and on n only."""

from __future__ import annotations

import os

import numpy as np

_BLOCK = 64  # makes a single number cheap
_PER_COUNTER = 4  # Philox makes four numbers of 64 bits from one counter


class RandomNumbers:
    """Uniform in [0, 1). `seed`: 0 to 2**64 - 1, or None for a random one."""

    def __init__(self, seed: int | None) -> None:
        self._key = int.from_bytes(os.urandom(8), "little") if seed is None else seed
        self._block_index = -1
        self._block: list[float] = []

    def at(self, n: int) -> float:
        """The n-th number, from 0."""
        index, offset = divmod(n, _BLOCK)
        if index != self._block_index:
            philox = np.random.Philox(key=self._key, counter=index * (_BLOCK // _PER_COUNTER))
            self._block = np.random.Generator(philox).random(_BLOCK).tolist()
            self._block_index = index
        return self._block[offset]
