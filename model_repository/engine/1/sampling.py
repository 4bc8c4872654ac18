"""From logits to the next token, for one row."""

from __future__ import annotations

import os

import numpy as np
import numpy.typing as npt


class Sampler:
    """temperature 0 is greedy. The same seed and logits give the same tokens."""

    def __init__(self, *, temperature: float, top_p: float, seed: int | None) -> None:
        self._temperature = temperature
        self._top_p = top_p
        entropy = int.from_bytes(os.urandom(8), "little") if seed is None else seed
        self._random = np.random.Generator(np.random.Philox(entropy))

    def next_token(self, logits: npt.NDArray[np.float32]) -> int:
        """logits: [vocab]."""
        if self._temperature == 0:
            return int(logits.argmax())
        probabilities = self._nucleus(_softmax(logits, self._temperature))
        cumulative = np.cumsum(probabilities)
        drawn = self._random.random() * cumulative[-1]
        return int(min(np.searchsorted(cumulative, drawn, side="right"), len(logits) - 1))

    def _nucleus(self, probabilities: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Keeps the fewest most likely tokens whose probabilities reach top_p."""
        if self._top_p >= 1:
            return probabilities
        order = np.argsort(-probabilities, kind="stable")
        before = np.cumsum(probabilities[order]) - probabilities[order]
        dropped = order[before >= self._top_p]
        dropped = dropped[dropped != order[0]]
        probabilities[dropped] = 0
        return probabilities


def _softmax(logits: npt.NDArray[np.float32], temperature: float) -> npt.NDArray[np.float64]:
    """The greatest logit is taken off first: no temperature, however small, overflows."""
    with np.errstate(over="ignore"):
        exponentials = np.exp((logits.astype(np.float64) - logits.max()) / temperature)
    result: npt.NDArray[np.float64] = exponentials / exponentials.sum()
    return result
