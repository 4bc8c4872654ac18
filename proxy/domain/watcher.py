"""The ports to telemetry, which sees a request's events and its engine streams go by."""

from __future__ import annotations

from typing import Protocol

from triton_openai.proxy.domain.delivery import Delivery
from triton_openai.proxy.domain.engine import EngineRequest
from triton_openai.proxy.domain.events import Events
from triton_openai.proxy.domain.model import ModelCard
from triton_openai.proxy.domain.output import TokenDelta
from triton_openai.proxy.domain.request import GenerationRequest


class StreamWatch(Protocol):
    """Sees the deltas of one engine stream."""

    def see(self, delta: TokenDelta) -> None:
        """Called for every delta, before anything is made of it. Costs less than a microsecond."""
        ...


class RequestWatch(Protocol):
    """Sees one request."""

    def events(self, events: Events) -> Events:
        """Passes the events on, and counts and times them."""
        ...

    def stream(self, asked: EngineRequest) -> StreamWatch:
        """For one of the engine streams that the events are made of."""
        ...


class Watcher(Protocol):
    def begin(
        self, request: GenerationRequest, card: ModelCard, delivery: Delivery
    ) -> RequestWatch:
        """`delivery` counts the tokens of the request's engine streams."""
        ...

    def resent(self, card: ModelCard) -> None:
        """A stream of the running request is sent to the engine again."""
        ...
