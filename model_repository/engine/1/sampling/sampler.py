"""Samples one token a row from the logits of a batch. The onnx runtime calls it at every step.

The order is vLLM's: guide; log-probabilities; allowed_token_ids, bad_words, min_tokens; logit_bias;
penalties; temperature; min_p; top_k; top_p; the draw.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from port import Token, TokenLogProbs
from sampling.draws import draw_wide, weights_of
from sampling.edits import edit
from sampling.log_probs import log_probs
from sampling.ranking import Logits, take_rows
from sampling.restrictions import Bitmask, apply_guides
from sampling.state import SamplerState
from sampling.truncation import Truncation, draw_truncated

Ints = npt.NDArray[np.int64]


class SamplingFailed(Exception):
    """One row has no next token. Returned, not raised, because the other rows continue."""


def sample(
    logits: Logits, states: Sequence[SamplerState], bitmask: Bitmask | None = None
) -> list[Token | SamplingFailed]:
    """One result a row, independent of the other rows. Appends nothing to the states.

    logits: float32 [rows, at least vocab_size]; may be overwritten. bitmask: int32 [rows, words of
    32 tokens] as xgrammar fills it, all ones for a row without a guide.
    A row fails if it has a NaN, +inf or no finite logit, or if its guide allows no token with a
    finite logit.
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
    """Checks only the winners: NaN and +inf win every argmax."""
    value = logits.item
    return [
        Token(token) if -np.inf < value(row, token) < np.inf else failure
        for row, token in enumerate(logits.argmax(axis=1).tolist())
    ]


def _sample(
    logits: Logits, states: Sequence[SamplerState], bitmask: Bitmask | None
) -> list[Token | SamplingFailed]:
    allowed_best = logits.max(axis=1)
    failures = {row: _not_finite() for row in np.flatnonzero(~np.isfinite(allowed_best)).tolist()}
    if bitmask is not None:
        apply_guides(logits, bitmask)
        allowed_best = logits.max(axis=1)
    edited = _edited(logits, states)
    ids = edited.argmax(axis=1)
    best = edited[np.arange(len(states)), ids]
    for row in np.flatnonzero(~np.isfinite(best)).tolist():
        failures.setdefault(row, _dead_end())
    sound = [row for row in range(len(states)) if row not in failures]
    _draw(edited, best, states, [row for row in sound if not states[row].is_greedy], ids)
    wanting = [row for row in sound if states[row].params.log_probs is not None]
    details = _log_probs(logits, allowed_best, states, wanting, ids)
    return [
        failures.get(row) or Token(token, details.get(row))
        for row, token in enumerate(ids.tolist())
    ]


def _edited(logits: Logits, states: Sequence[SamplerState]) -> Logits:
    """Edits in place, unless the unedited logits are still needed for log-probabilities."""
    if not any(state.is_edited for state in states):
        return logits
    if any(state.params.log_probs is not None for state in states):
        logits = logits.copy()
    edit(logits, [state.edits for state in states])
    return logits


def _draw(
    logits: Logits, best: Logits, states: Sequence[SamplerState], rows: list[int], ids: Ints
) -> None:
    """Draws a token for each of `rows`, and writes it into `ids`."""
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
    return SamplingFailed("the guide allows no token that can be drawn")
