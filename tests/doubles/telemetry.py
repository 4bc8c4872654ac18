"""Telemetry that keeps nothing but which streams were sent again, or continued."""

from __future__ import annotations

from proxy.domain.engine import EngineRequest
from proxy.domain.generation import Report
from proxy.domain.interrupt import Cause
from proxy.domain.model import ModelCard
from proxy.domain.output import TokenDelta
from proxy.domain.request import GenerationRequest


class Unwatched:
    """See domain.watcher: all three ports at once."""

    def __init__(self) -> None:
        self.resent_models: list[str] = []
        self.causes: list[Cause] = []  # of continuations
        self.failed_causes: list[Cause] = []

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

    def continued(self, card: ModelCard, cause: Cause, pause_s: float) -> None:
        self.causes.append(cause)

    def not_continued(self, card: ModelCard, cause: Cause) -> None:
        self.failed_causes.append(cause)
