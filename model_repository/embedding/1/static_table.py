"""A static model: the mean of the vectors that a table has for the tokens."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from encoder import TokenSequence


class StaticTable:
    """Reads only those rows of the file that are used. dtype: float16 or float32."""

    def __init__(self, file: Path, *, dtype: str, offset: int, shape: tuple[int, int]) -> None:
        self._table: npt.NDArray[Any] = np.memmap(
            file, dtype=dtype, mode="r", offset=offset, shape=shape
        )

    def vectors(self, sequences: Sequence[TokenSequence]) -> npt.NDArray[np.float32]:
        """A text without any known token has the vector 0."""
        found = np.zeros((len(sequences), self._table.shape[1]), dtype=np.float32)
        for row, sequence in enumerate(sequences):
            if sequence.ids:
                found[row] = self._table[list(sequence.ids)].mean(axis=0, dtype=np.float32)
        return found
