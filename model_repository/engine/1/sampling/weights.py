"""`temperature`: logits -> weights, which are probabilities not yet divided by their sum."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sampling.ranking import Logits

Weights = npt.NDArray[np.float64]
BLOCK = 256
# Smaller temperatures count as this one: float32 can hold its inverse, and the draw is greedy.
LEAST_TEMPERATURE = 1.2e-38


def weights_of(logits: Logits, best: Logits, temperatures: Weights) -> Logits:
    """[rows, vocab]: exp((logits - best) / temperature), so the best token has the weight 1."""
    with np.errstate(over="ignore", under="ignore"):
        weights = logits - best[:, None]
        weights *= (1 / np.maximum(temperatures, LEAST_TEMPERATURE)).astype(np.float32)[:, None]
        return np.exp(weights, out=weights)


def block_sums(weights: Logits) -> Weights:
    """[rows, blocks]: sums over BLOCK columns each, the last block may be shorter.

    Exact to float32's seventh digit, which a cumulative float32 sum over a large vocabulary is not.
    """
    rows, width = weights.shape
    whole = width // BLOCK * BLOCK
    sums = np.zeros((rows, -(-width // BLOCK)))
    sums[:, : whole // BLOCK] = weights[:, :whole].reshape(rows, -1, BLOCK).sum(axis=2)
    if whole < width:
        sums[:, -1] = weights[:, whole:].sum(axis=1)
    return sums
