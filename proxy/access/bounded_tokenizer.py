"""The tokenizer for those who only ask it, in so many calls at once."""

from __future__ import annotations

from collections.abc import Sequence

from triton_openai.proxy.access.concurrency import Concurrency
from triton_openai.proxy.domain.engine import EngineRequest
from triton_openai.proxy.domain.model import ModelCard
from triton_openai.proxy.domain.tokenizer import AdmittedPrompt, Tokenizer


class BoundedTokenizer:
    """A domain.tokenizer.Tokenizer; both verbs raise RateLimited, too."""

    def __init__(self, tokenizer: Tokenizer, concurrency: Concurrency) -> None:
        self._tokenizer = tokenizer
        self._concurrency = concurrency

    async def admit(self, request: EngineRequest) -> AdmittedPrompt:
        with self._concurrency.permits():
            return await self._tokenizer.admit(request)

    async def token_bytes(self, model: ModelCard, ids: Sequence[int]) -> tuple[bytes, ...]:
        with self._concurrency.permits():
            return await self._tokenizer.token_bytes(model, ids)
