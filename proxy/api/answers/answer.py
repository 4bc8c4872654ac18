"""Sends a generation as an HTTP answer: streamed, or as one body that is the fold of its events.

When the client disconnects, both close the events, which stops the engine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from typing import Protocol

import orjson
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from triton_openai.proxy.api import errors
from triton_openai.proxy.api.answers.client_disconnect import CancelOnDisconnect
from triton_openai.proxy.api.answers.stream_format import Part, Payload, StreamFormat
from triton_openai.proxy.api.answers.stream_writer import StreamWriter, headers_of
from triton_openai.proxy.domain.completion import Completion, Fold
from triton_openai.proxy.domain.delivery import Delivery
from triton_openai.proxy.domain.errors import ProxyError
from triton_openai.proxy.domain.events import Events, OutputEvent
from triton_openai.proxy.domain.request import GenerationRequest
from triton_openai.proxy.generation.service import Service


class Renderer(Protocol):
    """Turns events into one protocol's payloads, which are JSON objects."""

    @property
    def field_names(self) -> Mapping[str, str]:
        """Domain name -> this protocol's name, for fields where they differ; used in errors."""

    def chunks(self, event: OutputEvent) -> Sequence[Part]:
        """The parts of a stream that stand for the event."""

    def kept(self, event: OutputEvent) -> OutputEvent:
        """The event as it is folded for `full`, without large parts that were rendered already."""

    def full(self, completion: Completion) -> Payload:
        """The whole answer. `completion`: the fold of all events that `kept` returned."""


class Answers:
    """Makes the answer to a request. All routes share one."""

    def __init__(self, service: Service, *, keep_alive_s: float) -> None:
        self._service = service
        self._keep_alive_s = keep_alive_s

    def whole(self, request: GenerationRequest, renderer: Renderer) -> Response:
        delivery = Delivery()
        return WholeAnswer(self._service.generate(request, delivery), renderer, delivery)

    def streamed(
        self, request: GenerationRequest, renderer: Renderer, framing: StreamFormat
    ) -> Response:
        delivery = Delivery(is_live=True)
        events = self._service.generate(request, delivery)
        return StreamedAnswer(events, renderer, framing, delivery, keep_alive_s=self._keep_alive_s)


class WholeAnswer(Response):
    """One JSON body, sent when the generation has finished."""

    def __init__(self, events: Events, renderer: Renderer, delivery: Delivery) -> None:
        super().__init__()
        self._events = events
        self._renderer = renderer
        self._delivery = delivery

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        completion = None
        with in_words(self._renderer.field_names):
            async with CancelOnDisconnect(receive), aclosing(self._events) as events:
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
    """Sends the status with the first event, so an error before it is answered with its own status.

    If there is no event for `keep_alive_s`, the status is sent with a comment. An error after the
    status is sent as the last part of the stream.
    """

    def __init__(
        self,
        events: Events,
        renderer: Renderer,
        framing: StreamFormat,
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
        out = StreamWriter(send, self._framing, self._delivery, keep_alive_s=self._keep_alive_s)
        try:
            with in_words(self._renderer.field_names):
                async with out, CancelOnDisconnect(receive):
                    await self._stream(out)
        except Exception as error:
            if not out.has_started:
                raise
            body = errors.body_of(error)  # the status is sent, so the error must be a part
            await out.send(self._framing.error(body) + self._framing.end, is_last=True)

    async def _stream(self, out: StreamWriter) -> None:
        async with aclosing(self._events) as events:
            async for event in events:
                parts = self._renderer.chunks(event)
                await out.send(b"".join(map(self._framing.encode, parts)))
        await out.send(self._framing.end, is_last=True)


@contextmanager
def in_words(field_names: Mapping[str, str]) -> Iterator[None]:
    """Replaces an error's `param` with the protocol's name of the field, in its message as well."""
    try:
        yield
    except ProxyError as error:
        if error.param is not None and (name := field_names.get(error.param)) is not None:
            error.message = error.message.replace(f"'{error.param}'", f"'{name}'")
            error.param = name
        raise
