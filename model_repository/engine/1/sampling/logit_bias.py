"""`logit_bias`: a number to add to the logit of each listed token."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sampling.ranking import Logits
from sampling.token_ids import known


class LogitBias:
    """See edits.LogitEdit."""

    def __init__(self, bias: Sequence[tuple[int, float]], vocab_size: int) -> None:
        self._ids = known("logit_bias", (token for token, _ in bias), vocab_size)
        self._values = np.array([value for _, value in bias], np.float32)

    def apply(self, row: Logits) -> None:
        np.add.at(row, self._ids, self._values)

    def append(self, token_id: int) -> None:
        """The output does not change the bias."""
