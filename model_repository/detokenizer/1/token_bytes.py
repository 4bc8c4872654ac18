"""The table token id -> raw bytes: one blob with offsets on disk, a list in memory.

build_engines/tokenizer_tables.py writes it, the detokenizer reads it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np


class TokenBytes:
    """The bytes of each token; an id outside the vocabulary has none."""

    def __init__(self, table: list[bytes]) -> None:
        self._table = table

    @classmethod
    def load(cls, path: Path) -> TokenBytes:
        """Reads `blob` (uint8) and `ends` (int64, one past each token's last byte)."""
        with np.load(path) as stored:
            blob, ends = stored["blob"].tobytes(), stored["ends"].tolist()
        starts = [0, *ends[:-1]]
        return cls([blob[start:end] for start, end in zip(starts, ends, strict=True)])

    def lookup(self, ids: list[int]) -> list[bytes]:
        table, size = self._table, len(self._table)
        return [table[i] if 0 <= i < size else b"" for i in ids]
