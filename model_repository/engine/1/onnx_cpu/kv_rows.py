"""The KV cache of the running sequences, and what the scheduler needs of the model that fills it.

The cache is one memory map, which takes memory as it is written. Its layout is [layers * 2, rows,
kv_heads, capacity, head_size]. So one side (keys or values) of a layer is one contiguous tensor for
any run of rows, which ONNX Runtime reads as `past`, writes as `present`.
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

MAP_NORESERVE = 0x4000  # Linux; not in every Python's mmap module
CAPACITY_MULTIPLE = 256  # tokens: makes one row of one layer whole pages


@dataclass(frozen=True, slots=True, kw_only=True)
class KvShape:
    """The keys and values of one token. `sides` is two a layer: keys, then values."""

    sides: int
    kv_heads: int
    head_size: int
    dtype: npt.DTypeLike

    @property
    def token_bytes(self) -> int:
        return self.sides * self.kv_heads * self.head_size * np.dtype(self.dtype).itemsize


class KvOverflow(Exception):
    """Keys or values of these rows exceed what 16 bits hold."""

    def __init__(self, rows: list[int]) -> None:
        super().__init__(
            "keys or values of this model exceed 65,504, the largest number of 16 bits: build it "
            "with `precision: fp32`"
        )
        self.rows = rows


INFINITE = 0x7C00  # the exponent's bits in 16 bits


class KvRows:
    """Room for `rows` sequences of at most `capacity` tokens. Methods name a row by its number."""

    def __init__(self, shape: KvShape, *, rows: int, context_length: int) -> None:
        capacity = -(-context_length // CAPACITY_MULTIPLE) * CAPACITY_MULTIPLE
        self.shape = shape
        self.capacity = capacity
        self._map = mmap.mmap(
            -1,
            shape.token_bytes * rows * capacity,
            flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE,
        )
        if hasattr(mmap, "MADV_NOHUGEPAGE"):  # with huge pages a short row costs 2 MB a head
            self._map.madvise(mmap.MADV_NOHUGEPAGE)
        whole: npt.NDArray[Any] = np.frombuffer(self._map, dtype=shape.dtype)
        self._kv = whole.reshape(shape.sides, rows, shape.kv_heads, capacity, shape.head_size)
        self._row_bytes = self._kv[0, 0].nbytes

    def side(self, side: int, start: int, stop: int) -> npt.NDArray[Any]:
        """[stop - start, kv_heads, capacity, head_size]: a contiguous view, not a copy."""
        return self._kv[side, start:stop]

    def read(self, row: int, start: int, stop: int) -> npt.NDArray[Any]:
        """A copy of a row's tokens, [sides, kv_heads, stop - start, head_size]."""
        return self._kv[:, row, :, start:stop].copy()

    def write(self, row: int, start: int, tokens: npt.NDArray[Any]) -> None:
        """Writes what `read` returned into a row, from token `start` on."""
        self._kv[:, row, :, start : start + tokens.shape[2]] = tokens

    def has_overflown(self, row: int, start: int, stop: int) -> bool:
        """Whether tokens have infinite keys or values of 16 bits, or NaN."""
        if self.shape.dtype != np.float16:
            return False
        bits = self._kv[:, row, :, start:stop].view(np.uint16)
        return bool((bits & INFINITE).max() == INFINITE)

    def copy(self, source: int, target: int, tokens: int) -> None:
        """Copies the first `tokens` of one row into another."""
        self._kv[:, target, :, :tokens] = self._kv[:, source, :, :tokens]

    def release(self, row: int) -> None:
        """Returns the row's physical memory to the system."""
        rows = self._kv.shape[1]
        for side in range(self.shape.sides):
            offset = (side * rows + row) * self._row_bytes
            self._map.madvise(mmap.MADV_DONTNEED, offset, self._row_bytes)


Ids = npt.NDArray[np.int64]
Logits = npt.NDArray[np.float32]


class Decoder(Protocol):
    """One model and the KV cache of its rows. OnnxDecoder implements it."""

    @property
    def kv(self) -> KvRows: ...

    @property
    def vocab_size(self) -> int: ...

    @property
    def most_tokens(self) -> int:
        """The tokens that one call of `prefill` can take."""

    def prefill(self, row: int, ids: list[int], past_tokens: int, logits_from: int) -> Logits:
        """Feeds tokens to a row after its first `past_tokens`.

        Returns the logits of the tokens from ids[logits_from] on, [tokens, vocab]. Raises
        KvOverflow.
        """

    def decode(self, ids: Ids, past_tokens: Ids) -> Logits:
        """Feeds one token to each of the first n rows.

        ids, past_tokens: [n]. Returns logits [n, vocab], valid until the next call. Raises
        KvOverflow; the other rows may be fed the same tokens again.
        """
