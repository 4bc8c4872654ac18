"""The way of a request, once: prompt, engine, text, stops, events.

Called by the protocol adapters; knows no protocol.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Protocol

from typing_extensions import assert_never

from proxy import prompting, stalls
from proxy.access.concurrency import Concurrency
from proxy.domain.engine import Engine, EngineRequest
from proxy.domain.errors import EngineFailed
from proxy.domain.model import ModelCard
from proxy.domain.output import (
    Events,
    Finished,
    FinishReason,
    OutputEvent,
    TextDelta,
    TokenDelta,
    Usage,
)
from proxy.domain.request import ChatPrompt, GenerationRequest, TextPrompt, TokenPrompt
from proxy.registry import Registry
from proxy.stops import StopMatcher
from proxy.text import TextDecoder

Deltas = AsyncGenerator[TokenDelta, None]


class Watcher(Protocol):
    """Sees the events of a request go by; telemetry's side of the service."""

    def watch(self, request: GenerationRequest, card: ModelCard, events: Events) -> Events: ...


class Service:
    """Turns a request into events; closing the events early stops the engine."""

    def __init__(
        self,
        registry: Registry,
        engine: Engine,
        watcher: Watcher,
        concurrency: Concurrency,
        *,
        request_timeout_s: float,
        stall_timeout_s: float,
    ) -> None:
        self._registry = registry
        self._engine = engine
        self._watcher = watcher
        self._concurrency = concurrency
        self._request_timeout_s = request_timeout_s
        self._stall_timeout_s = stall_timeout_s

    def generate(self, request: GenerationRequest) -> Events:
        """Events that end with one Finished, or raise a ProxyError.

        Raises:
            UnknownModel, ModelUnavailable: at once.
        """
        card = self._registry.card(request.model)
        return self._watcher.watch(request, card, self._events(request, card))

    def engine_request(self, request: GenerationRequest) -> EngineRequest:
        """What the engine would get, for those who only want to know. Raises as `generate` does."""
        card = self._registry.card(request.model)
        return _engine_request(request, card, self._request_timeout_s)

    async def _events(self, request: GenerationRequest, card: ModelCard) -> Events:
        output = _Output(request, card)
        async with self._concurrency.permit(), aclosing(self._deltas(request, card)) as deltas:
            async for delta in deltas:
                for event in output.push(delta):
                    yield event
                if output.is_finished:
                    return
        raise EngineFailed("The engine's stream ended without a finish reason.")

    def _deltas(self, request: GenerationRequest, card: ModelCard) -> Deltas:
        asked = _engine_request(request, card, self._request_timeout_s)
        return stalls.watched(self._engine.generate(asked), self._stall_timeout_s)


class _Output:
    """One choice's chain: token bytes -> text -> stop strings -> events."""

    def __init__(self, request: GenerationRequest, card: ModelCard) -> None:
        self._text = TextDecoder(strips_leading_space=card.facts.strips_leading_space)
        self._stops = StopMatcher(request.stop)
        self._prompt_tokens = 0
        self._cached_tokens = 0
        self._completion_tokens = 0
        self.is_finished = False

    def push(self, delta: TokenDelta) -> list[OutputEvent]:
        if delta.prompt_tokens is not None:
            self._prompt_tokens = delta.prompt_tokens
        if delta.cached_tokens is not None:
            self._cached_tokens = delta.cached_tokens
        text = self._push_tokens(delta.token_bytes)
        finish = FinishReason.STOP if self._stops.is_stopped else delta.finish
        if finish is not None and not self._stops.is_stopped:
            text += self._stops.push(self._text.flush())
            if self._stops.is_stopped:
                finish = FinishReason.STOP
            text += self._stops.flush()
        events: list[OutputEvent] = [TextDelta(text)] if text else []
        if finish is not None:
            self.is_finished = True
            events.append(Finished(reason=finish, usage=self._usage()))
        return events

    def _push_tokens(self, token_bytes: tuple[bytes, ...]) -> str:
        """Token by token, so that usage ends with the token that completed a stop string."""
        text = ""
        for data in token_bytes:
            self._completion_tokens += 1
            text += self._stops.push(self._text.push(data))
            if self._stops.is_stopped:
                break
        return text

    def _usage(self) -> Usage:
        return Usage(
            prompt_tokens=self._prompt_tokens,
            completion_tokens=self._completion_tokens,
            cached_tokens=self._cached_tokens,
        )


def _engine_request(request: GenerationRequest, card: ModelCard, timeout_s: float) -> EngineRequest:
    text, token_ids, add_special_tokens = None, None, True
    match request.prompt:
        case ChatPrompt():
            text, add_special_tokens = prompting.render(request.prompt, card.facts), False
        case TextPrompt():
            text = request.prompt.text
        case TokenPrompt():
            token_ids = request.prompt.ids
        case _:
            assert_never(request.prompt)
    return EngineRequest(
        id=request.id,
        model=card,
        text=text,
        token_ids=token_ids,
        add_special_tokens=add_special_tokens,
        max_tokens=request.max_tokens,
        timeout_s=timeout_s,
        sampling=request.sampling.with_defaults(card.sampling),
    )
