"""A generation as an HTTP answer: streamed event by event, or whole as the fold of the same events.

Both live exactly as long as their client: when it leaves, the events are closed, and with them the
engine's work.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from typing import Protocol

import orjson
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from triton_openai.proxy.api import errors
from triton_openai.proxy.api.answers.connected import Connected
from triton_openai.proxy.api.answers.framing import Framing, Part, Payload
from triton_openai.proxy.api.answers.outgoing import Outgoing, headers_of
from triton_openai.proxy.domain.completion import Completion, Fold
from triton_openai.proxy.domain.delivery import Delivery
from triton_openai.proxy.domain.errors import ProxyError
from triton_openai.proxy.domain.events import Events, OutputEvent
from triton_openai.proxy.domain.request import GenerationRequest
from triton_openai.proxy.generation.service import Service


class Renderer(Protocol):
    """One protocol's words for events. Payloads are JSON objects."""

    @property
    def field_names(self) -> Mapping[str, str]:
        """Fields whose name in this protocol is not the domain's, for errors."""

    def chunks(self, event: OutputEvent) -> Sequence[Part]: ...

    def kept(self, event: OutputEvent) -> OutputEvent:
        """The event as it is kept for `full`: what is large is rendered as it comes."""

    def full(self, completion: Completion) -> Payload:
        """The fold of all events that `kept` returned."""


class Answers:
    """Makes the answer to a request; the routes have one."""

    def __init__(self, service: Service, *, keep_alive_s: float) -> None:
        self._service = service
        self._keep_alive_s = keep_alive_s

    def whole(self, request: GenerationRequest, renderer: Renderer) -> Response:
        delivery = Delivery()
        return WholeAnswer(self._service.generate(request, delivery), renderer, delivery)

    def streamed(
        self, request: GenerationRequest, renderer: Renderer, framing: Framing
    ) -> Response:
        delivery = Delivery(is_live=True)
        events = self._service.generate(request, delivery)
        return StreamedAnswer(events, renderer, framing, delivery, keep_alive_s=self._keep_alive_s)


class WholeAnswer(Response):
    """One JSON body, when everything is there."""

    def __init__(self, events: Events, renderer: Renderer, delivery: Delivery) -> None:
        super().__init__()
        self._events = events
        self._renderer = renderer
        self._delivery = delivery

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        completion = None
        with in_words(self._renderer.field_names):
            async with Connected(receive), aclosing(self._events) as events:
                completion = await self._folded(events)
        if completion is not None:
            body, headers = self._renderer.full(completion), headers_of(self._delivery)
            response = Response(orjson.dumps(body), headers=headers, media_type="application/json")
            await response(scope, receive, send)

    async def _folded(self, events: Events) -> Completion:
        folded = Fold()
        async for event in events:
            folded.add(self._renderer.kept(event))
        return folded.completion()


class StreamedAnswer(Response):
    """The status is sent with the first event, so an error before it keeps its own.

    Where nothing comes for `keep_alive_s`, it is sent with a sign of life. An error after that is
    a part of the stream, which then ends.
    """

    def __init__(
        self,
        events: Events,
        renderer: Renderer,
        framing: Framing,
        delivery: Delivery,
        *,
        keep_alive_s: float,
    ) -> None:
        super().__init__()
        self._events = events
        self._renderer = renderer
        self._framing = framing
        self._delivery = delivery
        self._keep_alive_s = keep_alive_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        out = Outgoing(send, self._framing, self._delivery, keep_alive_s=self._keep_alive_s)
        try:
            with in_words(self._renderer.field_names):
                async with out, Connected(receive):
                    await self._stream(out)
        except Exception as error:
            if not out.has_started:
                raise
            body = errors.body_of(error)  # the status is out: all that is left is a part
            await out.send(self._framing.error(body) + self._framing.end, is_last=True)

    async def _stream(self, out: Outgoing) -> None:
        async with aclosing(self._events) as events:
            async for event in events:
                parts = self._renderer.chunks(event)
                await out.send(b"".join(map(self._framing.part, parts)))
        await out.send(self._framing.end, is_last=True)


@contextmanager
def in_words(field_names: Mapping[str, str]) -> Iterator[None]:
    """An error's `param` becomes the name that the caller gave the field, in its message too."""
    try:
        yield
    except ProxyError as error:
        if error.param is not None and (name := field_names.get(error.param)) is not None:
            error.message = error.message.replace(f"'{error.param}'", f"'{name}'")
            error.param = name
        raise
