"""The best tokens of each row in order, found without sorting the vocabulary.

A floor under the values that matter comes first; only what reaches it is sorted.
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
    """ids, values: [rows, width], best first, ties by id. Short rows end in values of -inf."""

    ids: npt.NDArray[np.int64]
    values: Logits


def rank(logits: Logits, floors: Logits) -> Ranked:
    """Every token whose logit reaches its row's floor and is not -inf. floors: [rows]."""
    lowest = np.maximum(floors, np.finfo(np.float32).min)
    rows, ids = np.divmod(np.flatnonzero(logits >= lowest[:, None]), logits.shape[1])
    counts = np.bincount(rows, minlength=len(logits))
    columns = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    # Ascending ids and a stable sort: ties stay in the order of their ids.
    shape = len(logits), int(counts.max())
    negated = np.full(shape, np.inf, np.float32)
    negated[rows, columns] = -logits[rows, ids]
    padded_ids = np.zeros(shape, np.int64)
    padded_ids[rows, columns] = ids
    order = np.argsort(negated, axis=1, kind="stable")
    order += np.arange(len(logits))[:, None] * shape[1]
    return Ranked(padded_ids.take(order), -negated.take(order))


def floors_of_top(logits: Logits, ranks: npt.NDArray[np.int64]) -> Logits:
    """A value per row that its `ranks`-th best logit reaches, and few more. ranks: [rows], > 0.

    The maxima of many disjoint groups hold as many values that are at least the k-th of them.
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
    """logits[rows], ascending, without a copy where these are all rows."""
    return logits if len(rows) == len(logits) else logits[rows]
