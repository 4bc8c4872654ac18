"""`allowed_token_ids`: no other token is generated."""

from __future__ import annotations

from collections.abc import Iterable

from sampling.ranking import Logits
from sampling.restrictions import allow_only
from sampling.token_ids import known


class AllowedTokens:
    """See edits.LogitEdit."""

    def __init__(self, token_ids: Iterable[int], vocab_size: int) -> None:
        self._ids = known("allowed_token_ids", token_ids, vocab_size)

    def apply(self, row: Logits) -> None:
        allow_only(row, self._ids)

    def append(self, token_id: int) -> None:
        """The output does not change which tokens are allowed."""
