"""Keeps the keys and values of past prompts and answers, for later prompts with the same beginning.

The unit is a block of tokens, by its key of block_log.py, so equal beginnings are stored once and
found by any request. The least recently used block is evicted first. Lookups touch the blocks of a
prompt from its end, so its first blocks are evicted last.
"""

from __future__ import annotations

import ctypes
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy.typing as npt

from block_log import BlockKey, BlockLog
from onnx_cpu.kv_rows import KvRows

BLOCK = 16  # tokens


class PrefixCache:
    """Blocks [sides, kv_heads, BLOCK, head_size], up to the size that `limit` sets."""

    def __init__(self, rows: KvRows, log: BlockLog) -> None:
        self._rows = rows
        self._log = log
        self._most = 0  # blocks
        self._block_bytes = BLOCK * rows.shape.token_bytes
        self._blocks: OrderedDict[BlockKey, npt.NDArray[Any]] = OrderedDict()
        self.evicted_blocks = 0

    @property
    def used_bytes(self) -> int:
        return len(self._blocks) * self._block_bytes

    def match(self, keys: Sequence[BlockKey]) -> int:
        """The number of leading blocks that are cached; marks them as recently used."""
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
        """Copies a row's leading blocks into the cache, if they are not cached yet."""
        keys = keys[: self._most]
        known = self.match(keys)
        for position in reversed(range(known, len(keys))):
            start = position * BLOCK
            self._blocks[keys[position]] = self._rows.read(row, start, start + BLOCK)
        self._log.stored(keys[known:])
        self.match(keys[:known])
        self._evict()

    def limit(self, limit_bytes: int) -> None:
        """Sets the size, and evicts what exceeds it."""
        self._most = limit_bytes // self._block_bytes
        self._evict()

    def _evict(self) -> None:
        evicted = [
            self._blocks.popitem(last=False)[0] for _ in range(len(self._blocks) - self._most)
        ]
        self._log.removed(evicted)
        self.evicted_blocks += len(evicted)


SPARED = 0.1  # of the machine's memory, or of the container's
EVERY_S = 1.0
MEMINFO, CGROUP = Path("/proc/meminfo"), Path("/sys/fs/cgroup")


def spare_bytes(meminfo: Path = MEMINFO, cgroup: Path = CGROUP) -> int:
    """Free memory beyond SPARED, of the machine or of this container; negative if less is free."""
    kb = dict(line.split()[:2] for line in meminfo.read_text().splitlines())
    total, free = int(kb["MemTotal:"]) * 1024, int(kb["MemAvailable:"]) * 1024
    spare = free - int(SPARED * total)
    limit_file = cgroup / "memory.max"
    if limit_file.is_file() and (limit := limit_file.read_text().strip()).isdigit():
        stat = dict(line.split() for line in (cgroup / "memory.stat").read_text().splitlines())
        used = int((cgroup / "memory.current").read_text()) - int(stat["inactive_file"])
        spare = min(spare, int((1 - SPARED) * int(limit)) - used)
    return spare


class FreeMemory:
    """How much memory kept prefixes may take: what is free, less a tenth of all.

    Every engine of a machine looks at the same numbers, so that they share what is free. Looks once
    a second. clock: seconds, monotonic.
    """

    def __init__(
        self,
        spare: Callable[[], int] = spare_bytes,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._spare = spare
        self._clock = clock
        self._look_at = float("-inf")
        self._limit = 0
        self._libc = ctypes.CDLL(None)

    def limit(self, used: int) -> int:
        """The bytes that a cache may have that has `used` of them now."""
        now = self._clock()
        if now >= self._look_at:
            self._look_at = now + EVERY_S
            if (spare := self._spare()) < 0:
                self._libc.malloc_trim(0)  # gives back what was evicted a second ago
                spare = self._spare()
            self._limit = max(0, used + spare)
        return self._limit
