"""Ranks the best tokens of each row without sorting the vocabulary.

Callers first find a floor under the values that matter; only the tokens above it are sorted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Logits = npt.NDArray[np.float32]
_GROUPS_PER_RANK = 8
_GROUPS_AT_LEAST = 256


@dataclass(frozen=True, slots=True)
class Ranked:
    """ids, values: [rows, width], best first, ties by id. Shorter rows are padded with -inf."""

    ids: npt.NDArray[np.int64]
    values: Logits


def rank(logits: Logits, floors: Logits) -> Ranked:
    """Ranks every token whose logit reaches its row's floor and is not -inf. floors: [rows]."""
    lowest = np.maximum(floors, np.finfo(np.float32).min)
    rows, ids = np.divmod(np.flatnonzero(logits >= lowest[:, None]), logits.shape[1])
    counts = np.bincount(rows, minlength=len(logits))
    columns = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    # The ids ascend and the sort is stable, so ties stay in the order of their ids.
    shape = len(logits), int(counts.max())
    negated = np.full(shape, np.inf, np.float32)
    negated[rows, columns] = -logits[rows, ids]
    padded_ids = np.zeros(shape, np.int64)
    padded_ids[rows, columns] = ids
    order = np.argsort(negated, axis=1, kind="stable")
    order += np.arange(len(logits))[:, None] * shape[1]
    return Ranked(padded_ids.take(order), -negated.take(order))


def floors_of_top(logits: Logits, ranks: npt.NDArray[np.int64]) -> Logits:
    """[rows]: a floor that the row's `ranks`-th best logit reaches, and few others. ranks > 0.

    It is the k-th best of the maxima of many disjoint groups: k logits are at least that high.
    """
    vocab = logits.shape[1]
    wanted = np.minimum(ranks, vocab)  # never more than there are groups
    groups = max(int(wanted.max()) * _GROUPS_PER_RANK, _GROUPS_AT_LEAST)
    depth = max(vocab // groups, 1)
    groups = vocab // depth
    maxima = logits[:, : depth * groups].reshape(len(logits), depth, groups).max(axis=1)
    places = groups - wanted
    maxima.partition(np.unique(places), axis=1)
    floors: Logits = maxima[np.arange(len(logits)), places]
    return floors


def take_rows(logits: Logits, rows: Sequence[int] | npt.NDArray[np.int64]) -> Logits:
    """logits[rows] for ascending `rows`; without a copy if these are all rows."""
    return logits if len(rows) == len(logits) else logits[rows]
