"""Which blocks of tokens the KV cache holds: a runtime writes it, proxies read it to route by.

A block has the key of its tokens and of all tokens before it, so equal beginnings of prompts have
equal keys in every engine of a model. A proxy asks for the changes since its last question, see
`changes_after`, and learns the keys of its own prompts from their first responses.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import islice

import numpy as np

MOST_CHANGES = 65_536  # that are kept; a proxy that is further behind starts anew
CHANGES_AT_ONCE = 16_384
HELD_AT_ONCE = 16_384  # the newest
PROMPT_BLOCKS = 2_048  # that a first response has; proxies compare no more of a prompt
WATCHED_S = 10.0  # after a question

BlockKey = bytes


def root_key(salt: str) -> BlockKey:
    """The key before the first block."""
    return hashlib.blake2b(salt.encode(), digest_size=16).digest()


def next_key(before: BlockKey, tokens: Sequence[int]) -> BlockKey:
    block = np.asarray(tokens, dtype=np.int32).tobytes()
    return hashlib.blake2b(before + block, digest_size=16).digest()


class BlockKeys:
    """The keys of a growing token sequence's full blocks of `size` tokens."""

    def __init__(self, salt: str, size: int) -> None:
        self._last = root_key(salt)
        self._size = size
        self._keys: list[BlockKey] = []

    def of(self, tokens: Sequence[int]) -> list[BlockKey]:
        """The keys of all full blocks; `tokens` may only have grown since the last call."""
        size = self._size
        for start in range(len(self._keys) * size, len(tokens) - size + 1, size):
            self._last = next_key(self._last, tokens[start : start + size])
            self._keys.append(self._last)
        return self._keys


class BlockLog:
    """For one model, whose name is part of the numbers that stand for keys outside of the engine.

    size: tokens of a block. The runtime's thread writes, the shell's reads.
    """

    def __init__(self, model: str, size: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.size = size
        self._model = int.from_bytes(root_key(model)[:8], "little")
        self._clock = clock
        self._lock = threading.Lock()
        self._held: dict[int, None] = {}  # a block stands behind the one before it
        self._changes: deque[tuple[int, bool]] = deque(maxlen=MOST_CHANGES)
        self._end = secrets.randbits(62)  # so that a position is of one process only
        self._asked_at = float("-inf")

    def stored(self, keys: Iterable[BlockKey]) -> None:
        with self._lock:
            for number in map(self._number, keys):
                if number not in self._held:
                    self._held[number] = None
                    self._note(number, is_held=True)

    def removed(self, keys: Iterable[BlockKey]) -> None:
        with self._lock:
            for number in map(self._number, keys):
                if number in self._held:
                    del self._held[number]
                    self._note(number, is_held=False)

    def restart(self) -> None:
        """Forgets the cache: a proxy that asks next starts anew."""
        with self._lock:
            self._held.clear()
            self._changes.clear()
            self._end = secrets.randbits(62)

    @property
    def is_watched(self) -> bool:
        """Whether some proxy has asked for changes lately."""
        return self._clock() - self._asked_at <= WATCHED_S

    def of_prompt(self, keys: Sequence[BlockKey]) -> list[int]:
        """For a first response: the size of a block, then a number for each; empty if nobody
        watches.
        """
        if not self.is_watched:
            return []
        return [self.size, *map(self._number, keys[:PROMPT_BLOCKS])]

    def changes_after(self, position: int) -> list[int]:
        """[the next position, 1 to start anew from nothing, how many blocks are new, their numbers,
        and those of blocks that are gone].

        position: of the last answer; 0 at first. Answers with CHANGES_AT_ONCE at most: the next
        one continues there.
        """
        self._asked_at = self._clock()
        with self._lock:
            start = self._end - len(self._changes)
            if not start <= position <= self._end:
                held = list(islice(reversed(self._held), HELD_AT_ONCE))
                return [self._end, 1, len(held), *reversed(held)]
            first = position - start
            found = list(islice(self._changes, first, first + CHANGES_AT_ONCE))
        last = dict(found)
        new = [number for number, is_held in last.items() if is_held]
        gone = [number for number, is_held in last.items() if not is_held]
        return [position + len(found), 0, len(new), *new, *gone]

    def _number(self, key: BlockKey) -> int:
        return int.from_bytes(key[:8], "little") ^ self._model

    def _note(self, number: int, *, is_held: bool) -> None:
        self._changes.append((number, is_held))
        self._end += 1
