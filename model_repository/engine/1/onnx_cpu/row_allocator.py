"""Decides which sequences run: gives out rows and KV memory, and takes rows back (preemption).

Rows come before the prefix cache, higher priorities before lower ones, earlier before later ones.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator

from block_log import BlockKey, BlockLog
from onnx_cpu.batch import Batch
from onnx_cpu.kv_rows import KvRows
from onnx_cpu.prefix_cache import BLOCK, FreeMemory, PrefixCache
from onnx_cpu.sequence import Sequence
from onnx_cpu.waiting_queue import WaitingQueue
from port import Job
from stats import Stats

CANDIDATES_A_STEP = 32  # waiting sequences: hashing a long prompt takes part of a millisecond
GROWTH = 32  # tokens that each row may grow by before an admission turns out to be too early


class RowAllocator:
    """`kv_tokens`: what rows and prefix cache may hold together. Calls `ended` with ended jobs.

    most_replayed: see Sequence.start.
    """

    def __init__(
        self,
        kv: KvRows,
        stats: Stats,
        *,
        rows: int,
        kv_tokens: int,
        most_replayed: int,
        memory: FreeMemory,
        blocks: BlockLog,
        ended: Callable[[Job], None],
    ) -> None:
        self.batch = Batch(kv, rows)
        self.waiting = WaitingQueue()
        self.cache = PrefixCache(kv, blocks)
        self._blocks = blocks
        self._stats = stats
        self._kv_tokens = kv_tokens
        self._most_replayed = most_replayed
        self._memory = memory
        self._token_bytes = kv.shape.token_bytes
        self._ended = ended

    @property
    def is_empty(self) -> bool:
        return not (len(self.waiting) or self.batch.running)

    def __iter__(self) -> Iterator[Sequence]:
        """All sequences, waiting or running."""
        yield from self.waiting
        yield from self.batch.running

    def end(self, sequence: Sequence) -> None:
        """Removes a waiting or running sequence; the caller reports the reason to its sink."""
        if sequence.row is None:
            self.waiting.remove(sequence)
        else:
            self._take_row_from(sequence)
        sequence.is_gone = True
        self._ended(sequence.job)

    def save_prefix(self, sequence: Sequence) -> None:
        """Copies the tokens of its row into the prefix cache, as far as there is room."""
        if sequence.row is not None:
            self.cache.save(sequence.computed_keys(), sequence.row)

    def admit(self) -> None:
        """Gives rows to waiting sequences, in order, as long as there are rows and memory."""
        self.waiting.release(self.batch.prefilling)
        for _ in range(CANDIDATES_A_STEP):
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
        """Makes room for one more token in every decoding row.

        Preempts running sequences for it, the last in order first, but never the only one.
        """
        while self._held_with(len(self.batch.decoding)) > self._kv_tokens:
            last = self._last_in_order()
            if last is None or len(self.batch.running) == 1:
                break
            self._preempt(last)
        self.limit_cache()

    def limit_cache(self) -> None:
        """Evicts what running rows, or other programs, need the memory of."""
        free = max(0, self._kv_tokens - self.batch.held_tokens()) * self._token_bytes
        self.cache.limit(min(free, self._memory.limit(self.cache.used_bytes)))

    def report(self) -> None:
        """Writes the current values of the stats."""
        self._stats.evicted_blocks = self.cache.evicted_blocks
        self._stats.rows_prefilling = len(self.batch.prefilling)
        self._stats.rows_decoding = len(self.batch.decoding)
        self._stats.waiting = len(self.waiting)
        self._stats.preempted = self.waiting.preempted
        self._stats.kv_row_bytes = self.batch.computed_tokens() * self._token_bytes
        self._stats.kv_cached_bytes = self.cache.used_bytes
        self._stats.kv_blocks_used = -(-self.batch.held_tokens() // BLOCK)

    def _prefill_of_next_block(self, sequence: Sequence) -> tuple[Sequence, int] | None:
        """The running prefill that computes the block that this sequence needs next.

        Also the number of tokens that both have in common, which are worth waiting for.
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
        """Preempts lower priorities if needed; returns whether there is a row and memory."""
        while not self._has_room(wanted):
            last = self._last_in_order()
            if last is None or last.job.input.priority >= wanted.job.input.priority:
                return False
            self._preempt(last)
        return True

    def _has_room(self, wanted: Sequence) -> bool:
        running = len(self.batch.running)
        if not running:
            return True  # one full context always fits
        growth = GROWTH * (running + 1)
        fits = self._held_with(len(wanted.tokens) + growth) <= self._kv_tokens
        return fits and not self.batch.is_full

    def _held_with(self, tokens: int) -> int:
        return self.batch.held_tokens() + tokens

    def _last_in_order(self) -> Sequence | None:
        return max(self.batch.running, key=lambda running: running.order, default=None)

    def _preempt(self, sequence: Sequence) -> None:
        """Returns a sequence to the queue with its tokens and states, and frees its row."""
        self._take_row_from(sequence)
        self.waiting.add(sequence)
        sequence.job.sink.preempted()
        self._stats.preemptions += 1

    def _take_row_from(self, sequence: Sequence) -> None:
        self.save_prefix(sequence)
        self.batch.remove(sequence)
        sequence.computed = 0

    def _start(self, sequence: Sequence) -> None:
        """Gives the sequence a row, and copies the cached part of its tokens into it."""
        wanted = sequence.reusable_keys()
        keys = wanted[: self.cache.match(wanted)]
        row = self.batch.place(sequence)
        self.cache.load(keys, row)
        sequence.start(len(keys) * BLOCK, self._most_replayed)
        self.limit_cache()
        if sequence.has_started:
            sequence.job.sink.resumed()
        else:
            sequence.has_started = True
            sequence.job.sink.started(sequence.computed, blocks=self._blocks.of_prompt(wanted))
            self._stats.looked_up(sequence.computed)


def _equal_keys(one: list[BlockKey], other: list[BlockKey]) -> int:
    """The number of equal leading keys, by bisection: a key also covers all tokens before it."""
    return bisect.bisect_left(
        range(min(len(one), len(other))), True, key=lambda at: one[at] != other[at]
    )
