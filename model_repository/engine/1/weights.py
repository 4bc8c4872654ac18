"""Tokens' weights: probabilities that are not yet divided by their sum."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from ranking import Logits

Weights = npt.NDArray[np.float64]
BLOCK = 256
# No temperature divides by less: float32 holds its inverse, and the draw is greedy anyway.
LEAST_TEMPERATURE = 1.2e-38


def weights_of(logits: Logits, best: Logits, temperatures: Weights) -> Logits:
    """exp((logits - best) / temperature): the best token's is 1. [rows, vocab]"""
    with np.errstate(over="ignore", under="ignore"):
        weights = logits - best[:, None]
        weights *= (1 / np.maximum(temperatures, LEAST_TEMPERATURE)).astype(np.float32)[:, None]
        return np.exp(weights, out=weights)


def block_sums(weights: Logits) -> Weights:
    """[rows, blocks] of BLOCK columns each, the last one shorter. Exact to float32's seventh digit,
    as cumulating float32 over a large vocabulary is not."""
    rows, width = weights.shape
    whole = width // BLOCK * BLOCK
    sums = np.zeros((rows, -(-width // BLOCK)))
    sums[:, : whole // BLOCK] = weights[:, :whole].reshape(rows, -1, BLOCK).sum(axis=2)
    if whole < width:
        sums[:, -1] = weights[:, whole:].sum(axis=1)
    return sums
