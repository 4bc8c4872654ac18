"""Forbids tokens, unless that would leave a row no token at all."""

from __future__ import annotations

import numpy as np

from sampling.ranking import Logits
from sampling.token_ids import TokenIds


def allow_only(row: Logits, ids: TokenIds) -> None:
    """Forbids all others, unless that leaves no token. row: [vocab], changed in place."""
    kept = row[ids]
    if (kept > -np.inf).any():
        row.fill(-np.inf)
        row[ids] = kept


def ban(row: Logits, ids: TokenIds) -> None:
    """Forbids these tokens, unless that leaves no token. row: [vocab], changed in place."""
    if not len(ids):
        return
    before = row[ids]
    row[ids] = -np.inf
    if row.max() == -np.inf:
        row[ids] = before
