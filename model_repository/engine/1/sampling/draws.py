"""Weights of tokens, and draws by them: one column a row, by a uniform number."""

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


Columns = npt.NDArray[np.int64]


def draw(weights: Weights, uniforms: Weights) -> Columns:
    """weights: [rows, width], each row with a positive sum. Never draws a weight of 0."""
    cumulative = np.cumsum(weights, axis=1)
    total = cumulative[:, -1]
    reached = np.minimum(uniforms * total, np.nextafter(total, 0))
    columns: Columns = (cumulative > reached[:, None]).argmax(axis=1)
    return columns


def draw_wide(weights: Logits, uniforms: Weights) -> Columns:
    """The same for a whole vocabulary: draws a block by the blocks' sums, then a column in it."""
    rows = np.arange(len(weights))
    sums = block_sums(weights)
    block = draw(sums, uniforms)
    cumulative = np.cumsum(sums, axis=1)
    before = cumulative[rows, block] - sums[rows, block]
    inside = np.clip((uniforms * cumulative[:, -1] - before) / sums[rows, block], 0, 1)
    ids = block[:, None] * BLOCK + np.arange(BLOCK)
    is_real = ids < weights.shape[1]
    candidates = weights[rows[:, None], np.where(is_real, ids, 0)] * is_real
    return block * BLOCK + draw(candidates.astype(np.float64), inside)
