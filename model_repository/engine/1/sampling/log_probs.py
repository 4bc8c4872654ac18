"""`log_probs`: log-probabilities of the model's own distribution, for the rows that want them; of a
row with a guide, among the tokens that it allows, as vLLM and TensorRT-LLM have them.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from port import TokenLogProbs
from sampling.draws import block_sums, weights_of
from sampling.ranking import Logits, floors_of_top, rank


def log_probs(
    logits: Logits, best: Logits, chosen: npt.NDArray[np.int64], tops: list[int]
) -> list[TokenLogProbs]:
    """One result a row; a token of probability 0 is not an alternative.

    logits: [rows, vocab], before edits. best: [rows], their maxima. chosen: [rows], token
    ids. tops: the number of alternatives that each row wants.
    """
    totals = block_sums(weights_of(logits, best, np.ones(len(best)))).sum(axis=1)
    normalisers = best + np.log(totals)
    sampled = (logits[np.arange(len(logits)), chosen] - normalisers).tolist()
    ranked = rank(logits, floors_of_top(logits, np.maximum(tops, 1)))
    most = max(tops)
    ids = ranked.ids[:, :most].tolist()
    values = (ranked.values[:, :most] - normalisers[:, None]).tolist()
    return [
        TokenLogProbs(
            sampled[row],
            tuple(
                (token, value)
                for token, value in zip(ids[row][:top], values[row][:top], strict=True)
                if value > -np.inf
            ),
        )
        for row, top in enumerate(tops)
    ]
