"""Telemetry that keeps nothing but which models had a stream sent again."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from triton_openai.proxy.domain.delivery import Delivery
from triton_openai.proxy.domain.engine import EngineRequest
from triton_openai.proxy.domain.events import OutputEvent
from triton_openai.proxy.domain.model import ModelCard
from triton_openai.proxy.domain.output import TokenDelta
from triton_openai.proxy.domain.request import GenerationRequest


class Unwatched:
    """See domain.watcher: all three ports at once."""

    def __init__(self) -> None:
        self.resent_models: list[str] = []

    def begin(self, request: GenerationRequest, card: ModelCard, delivery: Delivery) -> Unwatched:
        return self

    def stream(self, asked: EngineRequest) -> Unwatched:
        return self

    def see(self, delta: TokenDelta) -> None:
        pass

    async def events(
        self, events: AsyncGenerator[OutputEvent, None]
    ) -> AsyncGenerator[OutputEvent, None]:
        async with aclosing(events):
            async for event in events:
                yield event

    def resent(self, card: ModelCard) -> None:
        self.resent_models.append(card.name)
