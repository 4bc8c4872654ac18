"""Who waits, who is at work, and who gives way: rows and memory among sequences.

Rows come before the prefix cache, higher priorities before lower ones, earlier before later.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator

from batch import Batch
from kv_rows import KvRows
from port import Job
from prefix_cache import BLOCK, BlockKey, PrefixCache
from sequence import Sequence
from stats import Stats
from waiting import Waiting

LOOKS_A_STEP = 32  # at waiting sequences: hashing a long prompt takes part of a millisecond
GROWTH = 32  # tokens that each row may grow by before an admission proves to be too early


class Roster:
    """`kv_tokens`: what rows and cache may hold together. `ended` is told of each job."""

    def __init__(
        self, kv: KvRows, stats: Stats, *, rows: int, kv_tokens: int, ended: Callable[[Job], None]
    ) -> None:
        self.batch = Batch(kv, rows)
        self.waiting = Waiting()
        self.cache = PrefixCache(kv)
        self._stats = stats
        self._kv_tokens = kv_tokens
        self._token_bytes = kv.shape.token_bytes
        self._ended = ended

    @property
    def is_empty(self) -> bool:
        return not (len(self.waiting) or self.batch.running)

    def __iter__(self) -> Iterator[Sequence]:
        yield from self.waiting
        yield from self.batch.running

    def end(self, sequence: Sequence) -> None:
        """It leaves, from wherever it is; the caller tells its sink why."""
        if sequence.row is None:
            self.waiting.remove(sequence)
        else:
            self._take_row_from(sequence)
        sequence.is_gone = True
        self._ended(sequence.job)

    def keep(self, sequence: Sequence) -> None:
        """Puts what its row holds into the cache, as far as there is room."""
        if sequence.row is not None:
            self.cache.save(sequence.computed_keys(), sequence.row)

    def admit(self) -> None:
        """Gives rows to those who wait, in order, as long as there are rows and memory."""
        self.waiting.release(self.batch.prefilling)
        for _ in range(LOOKS_A_STEP):
            sequence = self.waiting.first()
            if sequence is None or not self._can_make_room(sequence):
                return
            if (computing := self._prefill_of_next_block(sequence)) is not None:
                self.waiting.park_first(*computing)
            elif self._make_room(sequence):
                self._start(self.waiting.take_first())
            else:
                return

    def make_room_for_growth(self) -> None:
        """Every decoding row takes one token more; the last in order give way where that is
        too much."""
        while self._held_with(len(self.batch.decoding)) > self._kv_tokens:
            last = self._last_in_order()
            if last is None or len(self.batch.running) == 1:
                break
            self._preempt(last)
        self._limit_cache()

    def _prefill_of_next_block(self, sequence: Sequence) -> tuple[Sequence, int] | None:
        """The running prefill that computes the very block that this one needs next.

        With the number of tokens that both have in common: so many are worth waiting for.
        """
        if not self.batch.prefilling:
            return None
        keys = sequence.reusable_keys()
        found = self.cache.match(keys)
        for other in self.batch.prefilling if found < len(keys) else ():
            theirs = other.reusable_keys()
            if found < len(theirs) and theirs[found] == keys[found]:
                return other, BLOCK * _equal_keys(keys, theirs)
        return None

    def _can_make_room(self, wanted: Sequence) -> bool:
        last = self._last_in_order()
        return self._has_room(wanted) or (
            last is not None and last.job.input.priority < wanted.job.input.priority
        )

    def _make_room(self, wanted: Sequence) -> bool:
        """Whether there is a row and memory for it, taken from lower priorities if need be."""
        while not self._has_room(wanted):
            last = self._last_in_order()
            if last is None or last.job.input.priority >= wanted.job.input.priority:
                return False
            self._preempt(last)
        return True

    def _has_room(self, wanted: Sequence) -> bool:
        running = len(self.batch.running)
        if not running:
            return True  # the context length of one always fits
        growth = GROWTH * (running + 1)
        fits = self._held_with(len(wanted.tokens) + growth) <= self._kv_tokens
        return fits and not self.batch.is_full

    def _held_with(self, tokens: int) -> int:
        return self.batch.held_tokens() + tokens

    def _last_in_order(self) -> Sequence | None:
        return max(self.batch.running, key=lambda running: running.order, default=None)

    def _preempt(self, sequence: Sequence) -> None:
        """Back to the queue, with its tokens and states; its row goes to another."""
        self._take_row_from(sequence)
        self.waiting.add(sequence)
        self._stats.preemptions += 1

    def _take_row_from(self, sequence: Sequence) -> None:
        self.keep(sequence)
        self.batch.remove(sequence)
        sequence.computed = 0

    def _start(self, sequence: Sequence) -> None:
        """Gives it a row that begins with what the cache has of its tokens."""
        keys = sequence.reusable_keys()
        keys = keys[: self.cache.match(keys)]
        row = self.batch.place(sequence)
        self.cache.load(keys, row)
        sequence.computed = len(keys) * BLOCK
        self._limit_cache()
        if not sequence.has_started:
            sequence.has_started = True
            sequence.job.sink.started(sequence.computed)
            self._stats.cached_tokens += sequence.computed
            self._stats.prefix_hits += bool(keys)
            self._stats.prefix_misses += not keys

    def _limit_cache(self) -> None:
        free = self._kv_tokens - self.batch.held_tokens()
        self.cache.limit(max(0, free) * self._token_bytes)


def _equal_keys(one: list[BlockKey], other: list[BlockKey]) -> int:
    """How many leading keys are equal. A key stands for all tokens before it, too."""
    return bisect.bisect_left(
        range(min(len(one), len(other))), True, key=lambda at: one[at] != other[at]
    )
