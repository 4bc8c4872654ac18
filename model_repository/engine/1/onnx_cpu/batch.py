"""Assigns the running sequences to rows of the KV cache.

Decoding sequences are in rows 0 to n without a gap, so that one model run decodes them all;
prefilling ones are in any of the rows after them. One row more than `rows` is there for swapping.
"""

from __future__ import annotations

from onnx_cpu.kv_rows import KvRows
from onnx_cpu.sequence import Sequence


class Batch:
    """At most `rows` running sequences."""

    def __init__(self, kv: KvRows, rows: int) -> None:
        self._kv = kv
        self._rows = rows
        self._free = set(range(rows + 1))
        self.decoding: list[Sequence] = []
        self.prefilling: list[Sequence] = []

    @property
    def running(self) -> list[Sequence]:
        return [*self.decoding, *self.prefilling]

    @property
    def is_full(self) -> bool:
        return len(self.decoding) + len(self.prefilling) >= self._rows

    def held_tokens(self) -> int:
        """The tokens whose keys and values the rows hold, or will hold after prefill."""
        return sum(len(sequence.tokens) for sequence in self.running)

    def computed_tokens(self) -> int:
        """The tokens whose keys and values the rows hold now."""
        return sum(sequence.computed for sequence in self.running)

    def place(self, sequence: Sequence) -> int:
        """Assigns a row to a sequence, for its prefill."""
        sequence.row = row = self._take_row()
        self.prefilling.append(sequence)
        return row

    def promote(self, sequence: Sequence) -> None:
        """Moves a sequence to the decoding rows after its prefill."""
        self.prefilling.remove(sequence)
        target = len(self.decoding)
        if sequence.row != target:
            for other in self.prefilling:
                if other.row == target:
                    self._move(other, self._take_row())
            self._free.discard(target)
            self._move(sequence, target)
        self.decoding.append(sequence)

    def remove(self, sequence: Sequence) -> None:
        """Frees the sequence's row; the last decoding sequence fills the gap."""
        row, sequence.row = sequence.row, None
        if row is None:
            raise ValueError("the sequence has no row")
        if sequence in self.prefilling:
            self.prefilling.remove(sequence)
            self._give_row(row)
            return
        last = self.decoding.pop()
        if last is sequence:
            self._give_row(row)
        else:
            self.decoding[row] = last
            self._move(last, row)

    def _move(self, sequence: Sequence, target: int) -> None:
        source, sequence.row = sequence.row, target
        if source is not None:
            self._kv.copy(source, target, sequence.computed)
            self._give_row(source)

    def _take_row(self) -> int:
        row = min(row for row in self._free if row >= len(self.decoding))
        self._free.remove(row)
        return row

    def _give_row(self, row: int) -> None:
        self._kv.release(row)
        self._free.add(row)
