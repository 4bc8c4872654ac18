"""What changes logits before a token is drawn: restrictions, then bias, then penalties.

Guide, allowed_token_ids, bad_words and min_tokens restrict, in that order, and one that would
leave no token is passed over. So the guide always wins: a text that breaks it is worth nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from port import SamplingParams
from ranking import Logits
from sampler_state import SamplerState, TokenIds
from seen_tokens import SeenTokens

Bitmask = npt.NDArray[np.int32]
WHOLE_BATCH_ELEMENTS = 100_000  # beyond, the CPU's cache makes row by row faster
# What eight bits of a mask do to eight logits: a set bit allows, and the lowest comes first.
_BITS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
_CEILINGS = np.where(_BITS, np.inf, -np.inf).astype(np.float32)


def edit(logits: Logits, states: Sequence[SamplerState], bitmask: Bitmask | None) -> None:
    """logits: [rows, vocab], changed in place. bitmask: [rows, words], xgrammar's, or None."""
    if bitmask is not None:
        apply_guides(logits, bitmask)
    with np.errstate(over="ignore"):  # beyond float32 a banned token stays banned
        for row, state in zip(logits, states, strict=True):
            if state.is_edited:
                _edit_row(row, state)


def apply_guides(logits: Logits, bitmask: Bitmask) -> None:
    """In place: tokens whose bit is not set are never drawn."""
    octets = bitmask.view(np.uint8)
    width = logits.shape[1]
    if logits.size <= WHOLE_BATCH_ELEMENTS:
        ceilings = _CEILINGS.take(octets, axis=0).reshape(len(octets), -1)
        np.minimum(logits, ceilings[:, :width], out=logits)
        return
    for row in np.flatnonzero((bitmask != -1).any(axis=1)):
        ceilings = _CEILINGS.take(octets[row], axis=0).ravel()
        np.minimum(logits[row], ceilings[:width], out=logits[row])


def _edit_row(row: Logits, state: SamplerState) -> None:
    if state.allowed_ids is not None:
        _allow(row, state.allowed_ids)
    _ban(row, state.bad_word_ids())
    _ban(row, state.too_early_ids())
    if len(state.bias_ids):
        np.add.at(row, state.bias_ids, state.bias)
    if state.seen is not None:
        _penalise(row, state.seen, state.params)


def _allow(row: Logits, ids: TokenIds) -> None:
    kept = row[ids]
    if (kept > -np.inf).any():
        row.fill(-np.inf)
        row[ids] = kept


def _ban(row: Logits, ids: TokenIds) -> None:
    if not len(ids):
        return
    before = row[ids]
    row[ids] = -np.inf
    if row.max() == -np.inf:
        row[ids] = before


def _penalise(row: Logits, seen: SeenTokens, params: SamplingParams) -> None:
    """repetition: prompt and output, positive logits divided, others multiplied.

    frequency and presence: output alone, OpenAI's formula.
    """
    values, counts, repetition = row[seen.ids], seen.counts, params.repetition_penalty
    if repetition != 1:
        values = np.where(values > 0, values / repetition, values * repetition)
    values -= params.frequency_penalty * counts + params.presence_penalty * (counts > 0)
    row[seen.ids] = values
