"""From the logits of a batch to one token a row. The scheduler calls `sample` at every step.

The order is vLLM's: log-probabilities of the untouched logits; guide, allowed_token_ids,
bad_words, min_tokens; logit_bias; penalties; temperature; min_p; top_k; top_p; the draw.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from draws import draw_wide
from log_probs import log_probs
from logit_edits import Bitmask, apply_guides, edit
from port import Token, TokenLogProbs
from ranking import Logits, take_rows
from sampler_state import SamplerState
from truncation import Truncation, draw_truncated
from weights import weights_of

Ints = npt.NDArray[np.int64]


class SamplingFailed(Exception):
    """One row has no next token. Returned, not raised: the other rows of the batch go on."""


def sample(
    logits: Logits, states: Sequence[SamplerState], bitmask: Bitmask | None = None
) -> list[Token | SamplingFailed]:
    """One answer a row, which does not depend on the other rows. Appends nothing to the states.

    logits: float32 [rows, at least vocab_size], may be overwritten. bitmask: int32 [rows, words of
    32 tokens] as xgrammar fills it, all ones for a row without a guide.
    A row with a NaN, with +inf or without any finite logit fails, as does one whose guide and
    logits leave nothing.
    """
    if not states:
        return []
    logits = logits[:, : states[0].vocab_size]
    if all(state.is_plain for state in states):
        if bitmask is not None:
            apply_guides(logits, bitmask)
        return _most_likely(logits, _not_finite() if bitmask is None else _dead_end())
    with np.errstate(invalid="ignore"):  # of rows that fail
        return _sample(logits, states, bitmask)


def _most_likely(logits: Logits, failure: SamplingFailed) -> list[Token | SamplingFailed]:
    """NaN and +inf win every argmax, so that the winner tells whether the row is sound."""
    value = logits.item
    return [
        Token(token) if -np.inf < value(row, token) < np.inf else failure
        for row, token in enumerate(logits.argmax(axis=1).tolist())
    ]


def _sample(
    logits: Logits, states: Sequence[SamplerState], bitmask: Bitmask | None
) -> list[Token | SamplingFailed]:
    untouched_best = logits.max(axis=1)
    failures = {row: _not_finite() for row in np.flatnonzero(~np.isfinite(untouched_best)).tolist()}
    edited = _edited(logits, states, bitmask)
    ids = edited.argmax(axis=1)
    best = edited[np.arange(len(states)), ids]
    for row in np.flatnonzero(~np.isfinite(best)).tolist():
        failures.setdefault(row, SamplingFailed("no token that the guide allows can be drawn"))
    sound = [row for row in range(len(states)) if row not in failures]
    _draw(edited, best, states, [row for row in sound if not states[row].is_greedy], ids)
    wanting = [row for row in sound if states[row].params.log_probs is not None]
    details = _log_probs(logits, untouched_best, states, wanting, ids)
    return [
        failures.get(row) or Token(token, details.get(row))
        for row, token in enumerate(ids.tolist())
    ]


def _edited(logits: Logits, states: Sequence[SamplerState], bitmask: Bitmask | None) -> Logits:
    """In place, unless log-probabilities of the untouched logits are still to be taken."""
    if bitmask is None and not any(state.is_edited for state in states):
        return logits
    if any(state.params.log_probs is not None for state in states):
        logits = logits.copy()
    edit(logits, states, bitmask)
    return logits


def _draw(
    logits: Logits, best: Logits, states: Sequence[SamplerState], rows: list[int], ids: Ints
) -> None:
    """Draws for those rows and writes what it draws into `ids`."""
    wide = [row for row in rows if not states[row].is_truncated]
    if wide:
        temperatures = np.array([states[row].params.temperature for row in wide])
        weights = weights_of(take_rows(logits, wide), best[wide], temperatures)
        ids[wide] = draw_wide(weights, np.array([states[row].uniform() for row in wide]))
    truncated = [row for row in rows if states[row].is_truncated]
    if truncated:
        truncation = Truncation.of([states[row] for row in truncated])
        ids[truncated] = draw_truncated(take_rows(logits, truncated), best[truncated], truncation)


def _log_probs(
    logits: Logits, best: Logits, states: Sequence[SamplerState], rows: list[int], ids: Ints
) -> dict[int, TokenLogProbs]:
    if not rows:
        return {}
    tops = [states[row].params.log_probs or 0 for row in rows]
    found = log_probs(take_rows(logits, rows), best[rows], ids[rows], tops)
    return dict(zip(rows, found, strict=True))


def _not_finite() -> SamplingFailed:
    return SamplingFailed("the model's logits are not finite")


def _dead_end() -> SamplingFailed:
    return SamplingFailed("no token that the guide allows can be drawn")
