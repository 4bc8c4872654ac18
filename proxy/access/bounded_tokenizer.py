"""A tokenizer with a limit on simultaneous calls, for routes that tokenize without generating."""

from __future__ import annotations

from collections.abc import Sequence

from proxy.access.concurrency import ConcurrencyLimit
from proxy.domain.engine import EngineRequest
from proxy.domain.model import ModelCard
from proxy.domain.tokenizer import AdmittedPrompt, Tokenizer

MOST_CALLS = 32  # at once, of /tokenize, /detokenize, /render and nvext's annotations


class BoundedTokenizer:
    """Implements domain.tokenizer.Tokenizer; both methods may also raise RateLimited."""

    def __init__(self, tokenizer: Tokenizer, most: int = MOST_CALLS) -> None:
        self._tokenizer = tokenizer
        self._concurrency = ConcurrencyLimit(most, what="tokenizer calls")

    async def admit(self, request: EngineRequest) -> AdmittedPrompt:
        with self._concurrency.permits():
            return await self._tokenizer.admit(request)

    async def token_bytes(self, model: ModelCard, ids: Sequence[int]) -> tuple[bytes, ...]:
        with self._concurrency.permits():
            return await self._tokenizer.token_bytes(model, ids)
