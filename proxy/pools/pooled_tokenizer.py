"""The tokenizers of all endpoints as one. Implements domain.tokenizer.Tokenizer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from typing import TypeVar

from proxy.domain.engine import EngineRequest
from proxy.domain.errors import GuidePending, ModelUnavailable
from proxy.domain.model import ModelCard
from proxy.domain.tokenizer import AdmittedPrompt, Tokenizer
from proxy.pools.endpoint import Endpoint
from proxy.pools.pool_set import PoolSet

Result = TypeVar("Result")
MOST_TRIES = 3


class PooledTokenizer:
    """Endpoints of a model take turns. One that is lost is left out, and another one asked."""

    def __init__(self, pools: PoolSet) -> None:
        self._pools = pools
        self._turns = count()

    async def admit(self, request: EngineRequest) -> AdmittedPrompt:
        return await self._asked(request.model, lambda tokenizer: tokenizer.admit(request))

    async def token_bytes(self, model: ModelCard, ids: Sequence[int]) -> tuple[bytes, ...]:
        return await self._asked(model, lambda tokenizer: tokenizer.token_bytes(model, ids))

    async def _asked(
        self, card: ModelCard, ask: Callable[[Tokenizer], Awaitable[Result]]
    ) -> Result:
        lost = ModelUnavailable("The model server is not available.")
        for _ in range(MOST_TRIES):
            if (endpoint := self._next(card)) is None:
                break
            try:
                return await ask(endpoint.connection.tokenizer)
            except GuidePending:
                raise
            except ModelUnavailable as error:
                lost = error
                endpoint.lost()
        raise lost

    def _next(self, card: ModelCard) -> Endpoint | None:
        variant = self._pools.variant(card)
        if variant is None:
            return None
        served = list(variant.served.values())
        return served[next(self._turns) % len(served)].endpoint
