"""Forbids tokens: what a guide's bitmask forbids; and others, unless no token would be left."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from port import BadParameter
from sampling.ranking import Logits

TokenIds = npt.NDArray[np.int64]


def as_array(token_ids: Iterable[int]) -> TokenIds:
    return np.fromiter(token_ids, np.int64)


def known(param: str, token_ids: Iterable[int], vocab_size: int) -> TokenIds:
    """The ids as an array. Raises BadParameter if one of them is outside the vocabulary."""
    ids = as_array(token_ids)
    unknown = ids[(ids < 0) | (ids >= vocab_size)]
    if len(unknown):
        raise BadParameter(
            param,
            f"{param} names token {unknown[0]}, which is outside the vocabulary of "
            f"{vocab_size} tokens",
        )
    return ids


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


Bitmask = npt.NDArray[np.int32]
WHOLE_BATCH_ELEMENTS = 100_000  # above, going row by row fits the CPU's cache better
# The ceilings that the eight bits of a mask put on eight logits: a set bit allows its token, and
# the lowest bit comes first.
_BITS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
_CEILINGS = np.where(_BITS, np.inf, -np.inf).astype(np.float32)


def apply_guides(logits: Logits, bitmask: Bitmask) -> None:
    """logits: [rows, vocab], changed in place. bitmask: [rows, words], as GuideMask.of gives it."""
    octets = bitmask.view(np.uint8)
    width = logits.shape[1]
    if logits.size <= WHOLE_BATCH_ELEMENTS:
        ceilings = _CEILINGS.take(octets, axis=0).reshape(len(octets), -1)
        np.minimum(logits, ceilings[:, :width], out=logits)
        return
    for row in np.flatnonzero((bitmask != -1).any(axis=1)):
        ceilings = _CEILINGS.take(octets[row], axis=0).ravel()
        np.minimum(logits[row], ceilings[:width], out=logits[row])
