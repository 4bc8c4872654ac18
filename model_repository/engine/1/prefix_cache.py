"""Keys and values of past prompts and answers, by blocks of tokens, for requests that begin alike.

A block's key is a hash of its tokens and of all before them, so that equal beginnings are stored
once and are found whoever computed them. The least recently used block goes first; as a chain is
touched from its end, its beginning goes last.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from kv_rows import KvRows

BLOCK = 16  # tokens
BlockKey = bytes


class BlockKeys:
    """The keys of a growing token sequence's full blocks."""

    def __init__(self, salt: str) -> None:
        self._last = hashlib.blake2b(salt.encode(), digest_size=16).digest()
        self._keys: list[BlockKey] = []

    def of(self, tokens: Sequence[int]) -> list[BlockKey]:
        """Keys of all full blocks of `tokens`, which may only have grown since the last call."""
        for start in range(len(self._keys) * BLOCK, len(tokens) - BLOCK + 1, BLOCK):
            block = np.asarray(tokens[start : start + BLOCK], dtype=np.int32).tobytes()
            self._last = hashlib.blake2b(self._last + block, digest_size=16).digest()
            self._keys.append(self._last)
        return self._keys


class PrefixCache:
    """Blocks [sides, kv_heads, BLOCK, head_size], as many as `limit` allows."""

    def __init__(self, rows: KvRows) -> None:
        self._rows = rows
        self._most = 0  # blocks
        self._block_bytes = BLOCK * rows.shape.token_bytes
        self._blocks: OrderedDict[BlockKey, npt.NDArray[Any]] = OrderedDict()
        self.evicted_blocks = 0

    @property
    def used_bytes(self) -> int:
        return len(self._blocks) * self._block_bytes

    def match(self, keys: Sequence[BlockKey]) -> int:
        """How many leading blocks are here; they become the most recently used ones."""
        found = 0
        while found < len(keys) and keys[found] in self._blocks:
            found += 1
        for key in reversed(keys[:found]):
            self._blocks.move_to_end(key)
        return found

    def load(self, keys: Sequence[BlockKey], row: int) -> None:
        """Copies matched blocks to the beginning of a row."""
        for position, key in enumerate(keys):
            self._rows.write(row, position * BLOCK, self._blocks[key])

    def save(self, keys: Sequence[BlockKey], row: int) -> None:
        """Copies a row's leading blocks here, those that are missing."""
        keys = keys[: self._most]
        known = self.match(keys)
        for position in reversed(range(known, len(keys))):
            start = position * BLOCK
            self._blocks[keys[position]] = self._rows.read(row, start, start + BLOCK)
        self.match(keys[:known])
        self._evict()

    def limit(self, limit_bytes: int) -> None:
        """At most so many bytes from now on."""
        self._most = limit_bytes // self._block_bytes
        self._evict()

    def _evict(self) -> None:
        while len(self._blocks) > self._most:
            self._blocks.popitem(last=False)
            self.evicted_blocks += 1
