"""Sends a generation as an HTTP answer: streamed, or as one body that is the fold of its events.

Both live exactly as long as their client: when it disconnects, the events are closed, and with them
the engine's work.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import orjson
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from proxy.api import errors
from proxy.api.answers.client_disconnect import CancelOnDisconnect
from proxy.api.answers.exchange import Exchange, Renderer
from proxy.api.answers.stream_format import StreamFormat
from proxy.api.answers.stream_writer import StreamWriter, headers_of
from proxy.domain.completion import Completion, Fold
from proxy.domain.events import Events
from proxy.domain.generation import Delivery, Generation
from proxy.generation.service import Service


class Answers:
    """Makes the answer to a request. All routes share one."""

    def __init__(self, service: Service, *, keep_alive_s: float) -> None:
        self._service = service
        self._keep_alive_s = keep_alive_s

    def whole(self, exchange: Exchange) -> Response:
        generation = self._service.generate(exchange.request, exchange.card, Delivery.HELD)
        return WholeAnswer(generation, exchange.renderer)

    def streamed(self, exchange: Exchange, framing: StreamFormat) -> Response:
        generation = self._service.generate(exchange.request, exchange.card, Delivery.LIVE)
        return StreamedAnswer(
            generation, exchange.renderer, framing, keep_alive_s=self._keep_alive_s
        )


class WholeAnswer(Response):
    """One JSON body, sent when the generation has finished."""

    def __init__(self, generation: Generation, renderer: Renderer) -> None:
        super().__init__()
        self._generation = generation
        self._renderer = renderer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        completion = None
        with errors.ProtocolNames(self._renderer.field_names):
            async with CancelOnDisconnect(receive), aclosing(self._generation.events) as events:
                completion = await self._folded(events)
        if completion is not None:
            now_s = asyncio.get_running_loop().time()
            headers = headers_of(self._generation.record, now_s)
            body = self._renderer.full(completion)
            response = Response(orjson.dumps(body), headers=headers, media_type="application/json")
            await response(scope, receive, send)

    async def _folded(self, events: Events) -> Completion:
        folded = Fold()
        async for event in events:
            folded.add(self._renderer.kept(event))
        return folded.completion()


class StreamedAnswer(Response):
    """The status is sent with the first event, so an error before it has its own status.

    Where nothing comes for `keep_alive_s`, the status is sent with a sign of life. An error after
    that is a part of the stream, which then ends.
    """

    def __init__(
        self,
        generation: Generation,
        renderer: Renderer,
        framing: StreamFormat,
        *,
        keep_alive_s: float,
    ) -> None:
        super().__init__()
        self._generation = generation
        self._renderer = renderer
        self._framing = framing
        self._keep_alive_s = keep_alive_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        record = self._generation.record
        out = StreamWriter(send, self._framing, record, keep_alive_s=self._keep_alive_s)
        try:
            with errors.ProtocolNames(self._renderer.field_names):
                async with out, CancelOnDisconnect(receive):
                    await self._stream(out)
        except Exception as error:
            if not out.has_started:
                raise
            record.has_failed = True
            body = errors.body_of(error)  # the status is sent, so the error must be a part
            await out.send(self._framing.error(body) + self._framing.end, is_last=True)

    async def _stream(self, out: StreamWriter) -> None:
        async with aclosing(self._generation.events) as events:
            async for event in events:
                parts = self._renderer.chunks(event)
                await out.send(b"".join(map(self._framing.encode, parts)))
        await out.send(self._framing.end, is_last=True)
