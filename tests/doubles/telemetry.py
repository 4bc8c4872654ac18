"""Telemetry that keeps nothing but which models had a stream sent again."""

from __future__ import annotations

from triton_openai.proxy.domain.engine import EngineRequest
from triton_openai.proxy.domain.generation import Report
from triton_openai.proxy.domain.model import ModelCard
from triton_openai.proxy.domain.output import TokenDelta
from triton_openai.proxy.domain.request import GenerationRequest


class Unwatched:
    """See domain.watcher: all three ports at once."""

    def __init__(self) -> None:
        self.resent_models: list[str] = []

    def begin(self, request: GenerationRequest, card: ModelCard, report: Report) -> Unwatched:
        return self

    def __enter__(self) -> Unwatched:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def stream(self, request: EngineRequest) -> Unwatched:
        return self

    def see(self, delta: TokenDelta) -> None:
        pass

    def resent(self, card: ModelCard) -> None:
        self.resent_models.append(card.name)
