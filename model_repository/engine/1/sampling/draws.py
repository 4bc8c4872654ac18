"""Draws one column a row by its weights and a uniform number: inverts the cumulative sum."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sampling.ranking import Logits
from sampling.weights import BLOCK, Weights, block_sums

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
