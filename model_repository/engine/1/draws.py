"""From weights and one uniform number a row to the drawn place: the inverse of the cumulation."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from ranking import Logits
from weights import BLOCK, Weights, block_sums

Places = npt.NDArray[np.int64]


def draw(weights: Weights, uniforms: Weights) -> Places:
    """weights: [rows, width], a positive sum each. A weight of 0 is never drawn."""
    cumulative = np.cumsum(weights, axis=1)
    total = cumulative[:, -1]
    reached = np.minimum(uniforms * total, np.nextafter(total, 0))
    places: Places = (cumulative > reached[:, None]).argmax(axis=1)
    return places


def draw_wide(weights: Logits, uniforms: Weights) -> Places:
    """The same for a whole vocabulary: first a block of it by the blocks' sums, then in it."""
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
