"""`min_tokens`: the sequence does not end before it has this number of tokens."""

from __future__ import annotations

from sampling.ranking import Logits
from sampling.restrictions import ban
from sampling.token_ids import TokenIds


class MinTokens:
    """See edits.LogitEdit. SamplerState drops it when the sequence is long enough."""

    def __init__(self, ending_ids: TokenIds) -> None:
        self._ending_ids = ending_ids

    def apply(self, row: Logits) -> None:
        ban(row, self._ending_ids)

    def append(self, token_id: int) -> None:
        """The tokens themselves change nothing, only their number does."""
