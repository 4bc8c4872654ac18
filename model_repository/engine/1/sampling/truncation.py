"""`min_p`, `top_k`, `top_p`, in this order: draws from the most likely tokens only.

Each of the three keeps a prefix of the ranked tokens, so only the prefix's length matters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sampling.draws import LEAST_TEMPERATURE, Weights, block_sums, draw, weights_of
from sampling.ranking import Logits, Ranked, floors_of_top, rank, take_rows
from sampling.state import SamplerState

Ints = npt.NDArray[np.int64]
# At most 1,000 tokens have a share of one thousandth or more, and they usually hold the nucleus.
_TRIAL_SHARES = (1e-3, 1e-4, 1e-5)
_NOISE = 1e-6  # the error of float32 sums, which must not add a token to the nucleus


@dataclass(frozen=True, slots=True)
class Truncation:
    """The parameters of each row, and its uniform number. top_k: 0 keeps all tokens."""

    temperatures: Weights
    top_k: Ints
    top_p: Weights
    min_p: Weights
    uniforms: Weights

    @classmethod
    def of(cls, states: Sequence[SamplerState]) -> Truncation:
        numbers = np.array(
            [
                (state.params.temperature, state.params.top_p, state.params.min_p, state.uniform())
                for state in states
            ]
        ).T
        top_k = np.array([state.params.top_k for state in states])
        return cls(
            temperatures=np.maximum(numbers[0], LEAST_TEMPERATURE),
            top_k=np.where(top_k < states[0].vocab_size, top_k, 0),
            top_p=numbers[1],
            min_p=numbers[2],
            uniforms=numbers[3],
        )

    def take(self, rows: Ints) -> Truncation:
        return Truncation(
            self.temperatures[rows],
            self.top_k[rows],
            self.top_p[rows],
            self.min_p[rows],
            self.uniforms[rows],
        )


def draw_truncated(logits: Logits, best: Logits, truncation: Truncation) -> Ints:
    """The drawn token of each row. logits: [rows, vocab]; best: [rows], their maxima."""
    chosen = np.zeros(len(logits), np.int64)
    is_nucleus = (truncation.top_k == 0) & (truncation.min_p == 0)
    if (rows := np.flatnonzero(~is_nucleus)).size:
        own = truncation.take(rows)
        chosen[rows] = _draw_ranked(take_rows(logits, rows), best[rows], own)
    if (rows := np.flatnonzero(is_nucleus)).size:
        own = truncation.take(rows)
        chosen[rows] = _draw_nucleus(take_rows(logits, rows), best[rows], own)
    return chosen


def _draw_ranked(logits: Logits, best: Logits, truncation: Truncation) -> Ints:
    """With top_k or min_p, which give a floor under all tokens that can remain."""
    floors = np.full(len(logits), -np.inf, np.float32)
    if (rows := np.flatnonzero(truncation.top_k)).size:
        floors[rows] = floors_of_top(take_rows(logits, rows), truncation.top_k[rows])
    floors = np.maximum(floors, _floors_of_share(best, truncation.temperatures, truncation.min_p))
    ranked = rank(logits, floors)
    weights = _ranked_weights(ranked, truncation.temperatures)
    kept = (weights >= truncation.min_p[:, None]).sum(axis=1)
    kept = np.minimum(kept, np.where(truncation.top_k, truncation.top_k, kept))
    weights[np.arange(weights.shape[1]) >= kept[:, None]] = 0
    return _draw_from(ranked, weights, _total(weights), truncation)


def _draw_nucleus(logits: Logits, best: Logits, truncation: Truncation) -> Ints:
    """With top_p alone: lowers the floor until the tokens above it weigh enough."""
    chosen = np.zeros(len(logits), np.int64)
    mass = block_sums(weights_of(logits, best, truncation.temperatures)).sum(axis=1)
    # All tokens below the last floor weigh at most half of what top_p cuts off.
    last = (1 - truncation.top_p) / (2 * logits.shape[1])
    pending = np.arange(len(logits))
    for share in (*_TRIAL_SHARES, 0.0):
        own = truncation.take(pending)
        shares = np.maximum(share, last[pending]) * mass[pending]
        floors = _floors_of_share(best[pending], own.temperatures, shares)
        ranked = rank(take_rows(logits, pending), floors)
        weights = _ranked_weights(ranked, own.temperatures)
        is_done = (_total(weights) >= own.top_p * mass[pending]) | (share == 0)
        drawn = _draw_from(ranked, weights, mass[pending], own)
        chosen[pending[is_done]] = drawn[is_done]
        pending = pending[~is_done]
        if not pending.size:
            break
    return chosen


def _draw_from(ranked: Ranked, weights: Weights, mass: Weights, truncation: Truncation) -> Ints:
    """Draws from the nucleus: the fewest best tokens that reach top_p of `mass`, at least one."""
    before = np.cumsum(weights, axis=1) - weights
    wanted = np.where(truncation.top_p < 1, (truncation.top_p - _NOISE) * mass, np.inf)
    is_cut = before >= wanted[:, None]
    is_cut[:, 0] = False
    weights[is_cut] = 0
    ids: Ints = ranked.ids[np.arange(len(weights)), draw(weights, truncation.uniforms)]
    return ids


def _ranked_weights(ranked: Ranked, temperatures: Weights) -> Weights:
    values = ranked.values.astype(np.float64)
    with np.errstate(over="ignore", under="ignore"):
        weights: Weights = np.exp((values - values[:, :1]) / temperatures[:, None])
    return weights


def _total(weights: Weights) -> Weights:
    """[rows]: sums, added in order, so that the length of other rows does not change them."""
    total: Weights = np.cumsum(weights, axis=1)[:, -1]
    return total


def _floors_of_share(best: Logits, temperatures: Weights, shares: Weights) -> Logits:
    """[rows]: the logits whose weights are `shares`, less some slack; -inf for a share of 0."""
    with np.errstate(divide="ignore", over="ignore"):
        distances = temperatures * np.log(np.minimum(shares, 1))
        slack = 1e-6 * (np.abs(best) - distances)
        floors: Logits = (best + distances - slack).astype(np.float32)
    return floors
