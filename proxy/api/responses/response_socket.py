"""The WebSocket form of the Responses API: messages are `response.create`, answers are events.

The responses of one socket are kept as long as it is open, also those with `store` false.
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import aclosing
from functools import partial
from typing import Annotated, Literal

import orjson
from fastapi import APIRouter, WebSocket
from pydantic import StringConstraints
from starlette.websockets import WebSocketDisconnect

from proxy.api import errors
from proxy.api.http.answer import Payload, protocol_names
from proxy.api.http.request_socket import RequestSocket, SocketParts, socket_route
from proxy.api.responses.input_items import AnyItem
from proxy.api.responses.response_body import Absent, ResponseBody
from proxy.api.responses.response_builder import ResponseBuilder, ResponseExchange, whole_items
from proxy.domain.events import Finished
from proxy.domain.record import running_record
from proxy.domain.request import Delivery
from proxy.generation.service import Service

PATH = "/v1/responses"
MOST_KEPT = 16  # responses of one socket, the newest
MOST_KEPT_BYTES = 4_000_000


class CreateMessage(ResponseBody):
    """`generate` false prepares a response without output, which a later one can continue."""

    type: Literal["response.create"]
    stream_id: Annotated[str, StringConstraints(min_length=1, max_length=128)] | None = None
    generate: bool = True
    background: Absent = None


def routes(service: Service, builder: ResponseBuilder, parts: SocketParts) -> APIRouter:
    return socket_route(PATH, parts, partial(ResponseSocket, service, builder, parts))


class ResponseSocket(RequestSocket):
    path, key = PATH, "stream_id"

    def __init__(
        self,
        service: Service,
        builder: ResponseBuilder,
        parts: SocketParts,
        websocket: WebSocket,
    ) -> None:
        super().__init__(websocket, parts)
        self._service = service
        self._builder = builder
        self._kept: OrderedDict[str, tuple[bytes, bytes]] = OrderedDict()  # input and output, JSON

    async def _received(self, data: bytes) -> None:
        self._begin(await self._parts.bodies.parse(data, CreateMessage, self._caller))

    async def _streamed(self, body: CreateMessage) -> None:
        running_record().is_private = body.store is False
        before = await self._before(body)
        found = await self._builder.exchange(body, self._caller, before=before, keeps_input=True)
        exchange, renderer = found.exchange, found.renderer
        if not body.generate:
            response = renderer.prepared()
            await self._keep(found, response)
            for chunk in (*renderer.opening(), renderer.last(response)):
                await self._send(chunk, body.stream_id)
            return
        try:
            with protocol_names(renderer.field_names):
                generation = self._service.generate(exchange.request, exchange.card, Delivery.LIVE)
                async with aclosing(generation.events) as events:
                    async for event in events:
                        if isinstance(event, Finished):
                            await self._keep(found, renderer.end(event))
                        for chunk in renderer.chunks(event):
                            await self._send(chunk, body.stream_id)
        except WebSocketDisconnect:
            raise
        except Exception as error:
            if not renderer.has_begun:
                raise
            for chunk in renderer.failure(errors.body_of(error)):
                await self._send(chunk, body.stream_id)

    def _error(self, error: Exception) -> Payload:
        status = errors.code_of(error).status
        return {"type": "error", "status": status, **errors.body_of(error)}

    async def _before(self, body: CreateMessage) -> list[AnyItem] | None:
        """The conversation that the message continues, if it is one of this socket's."""
        kept = self._kept.get(body.previous_response_id or "")
        if kept is None:
            return None
        given, output = kept
        return [
            *await self._builder.responses.items(given, self._caller),
            *await self._builder.responses.items(output, self._caller),
        ]

    async def _keep(self, found: ResponseExchange, response: Payload) -> None:
        self._kept[response["id"]] = found.input, orjson.dumps(whole_items(response))
        while len(self._kept) > MOST_KEPT or (
            len(self._kept) > 1 and self._kept_bytes > MOST_KEPT_BYTES
        ):
            self._kept.popitem(last=False)
        await self._builder.responses.keep(found, response, self._caller)

    @property
    def _kept_bytes(self) -> int:
        return sum(len(given) + len(output) for given, output in self._kept.values())
