"""The WebSocket form of the Responses API: messages are `response.create`, answers are events.

The responses of one socket are kept as long as it is open, also those with `store` false, within
bounds of the socket and of all sockets together.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from contextlib import aclosing
from functools import partial
from typing import Annotated, Literal

import orjson
from fastapi import APIRouter, WebSocket
from pydantic import StringConstraints
from starlette.websockets import WebSocketDisconnect

from proxy.access.limits.caller_meters import Standings
from proxy.access.limits.request_limiter import RequestLimiter
from proxy.api import errors
from proxy.api.http.request_socket import RequestSocket, SocketParts, socket_route
from proxy.api.http.stream_format import Payload
from proxy.api.responses.input_items import AnyItem
from proxy.api.responses.manifest import PATH
from proxy.api.responses.response_body import Absent, ResponseBody
from proxy.api.responses.response_builder import ResponseBuilder, ResponseExchange, whole_items
from proxy.domain.errors import ErrorCode, InvalidRequest
from proxy.domain.events import Finished
from proxy.domain.identity import current_caller
from proxy.domain.record import running_record
from proxy.domain.request import Delivery
from proxy.generation.service import Service
from proxy.state.kept_by_tenant import KeptByTenant
from proxy.state.streams import OVERHEAD_BYTES, TENANT_STREAMS

MOST_KEPT = 16  # responses of one socket, the newest
MOST_KEPT_BYTES = 4_000_000
KeptItems = tuple[bytes, bytes]  # JSON of what the model has read, and of what it has written
MOST_BYTES_OF_ALL = 64_000_000  # then the oldest of the tenant that has most make room


class CreateMessage(ResponseBody):
    """`generate` false prepares a response without output, which a later one can continue."""

    type: Literal["response.create"]
    stream_id: Annotated[str, StringConstraints(min_length=1, max_length=128)] | None = None
    generate: bool = True
    background: Absent = None


def routes(
    service: Service, builder: ResponseBuilder, limiter: RequestLimiter, parts: SocketParts
) -> APIRouter:
    kept: KeptByTenant[KeptItems] = KeptByTenant(
        keep_s=math.inf, most_bytes=MOST_BYTES_OF_ALL, most_of_tenant=TENANT_STREAMS
    )
    return socket_route(
        PATH, parts, partial(ResponseSocket, service, builder, limiter, kept, parts)
    )


class ResponseSocket(RequestSocket):
    path, key = PATH, "stream_id"

    def __init__(
        self,
        service: Service,
        builder: ResponseBuilder,
        limiter: RequestLimiter,
        kept: KeptByTenant[KeptItems],
        parts: SocketParts,
        websocket: WebSocket,
    ) -> None:
        super().__init__(websocket, parts)
        self._service = service
        self._builder = builder
        self._limiter = limiter
        self._kept = kept  # of all sockets
        self._sizes: OrderedDict[bytes, int] = OrderedDict()  # of this socket's, by their ids

    async def serve(self) -> None:
        try:
            await super().serve()
        finally:
            for id in self._sizes:
                self._kept.remove(id)

    async def _received(self, data: bytes) -> None:
        self._begin(await self._parts.bodies.parse(data, CreateMessage, self._caller))

    async def _streamed(self, body: CreateMessage) -> None:
        running_record().is_private = body.store is False
        if not body.generate:
            await self._prepare(body)
            return
        found = await self._exchange(body)
        exchange, renderer = found.exchange, found.renderer
        try:
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

    async def _prepare(self, body: CreateMessage) -> None:
        """Counts as a request, also where the prompt is refused because it does not fit."""
        running_record().standings = standings = Standings()
        async with self._limiter.counted(current_caller.get(), standings):
            found = await self._exchange(body)
            standings.is_costly = True
            try:
                await self._builder.count(found.exchange)
            except InvalidRequest as error:
                if error.code is not ErrorCode.UNSUPPORTED_PARAMETER:  # only the engine can count
                    raise
        renderer = found.renderer
        response = renderer.prepared()
        await self._keep(found, response)
        for chunk in (*renderer.opening(), renderer.last(response)):
            await self._send(chunk, body.stream_id)

    async def _exchange(self, body: CreateMessage) -> ResponseExchange:
        before = await self._before(body)
        return await self._builder.exchange(body, self._caller, before=before, keeps_input=True)

    def _error(self, error: Exception) -> Payload:
        status = errors.code_of(error).status
        return {"type": "error", "status": status, **errors.body_of(error)}

    async def _before(self, body: CreateMessage) -> list[AnyItem] | None:
        """The conversation that the message continues, if it is one of this socket's."""
        id = (body.previous_response_id or "").encode()
        kept = self._kept.get(id) if id in self._sizes else None
        if kept is None:
            return None
        read, written = kept
        return [
            *await self._builder.responses.items(read, self._caller),
            *await self._builder.responses.items(written, self._caller),
        ]

    async def _keep(self, found: ResponseExchange, response: Payload) -> None:
        responses, id = self._builder.responses, response["id"].encode()
        kept = (found.input, orjson.dumps(whole_items(response)))
        tenant = responses.key(response["id"], self._caller).tenant
        self._sizes[id] = OVERHEAD_BYTES + sum(map(len, kept))
        await self._kept.put(id, tenant, kept, self._sizes[id])
        while len(self._sizes) > MOST_KEPT or (
            len(self._sizes) > 1 and sum(self._sizes.values()) > MOST_KEPT_BYTES
        ):
            self._kept.remove(self._sizes.popitem(last=False)[0])
        await responses.keep(found, response, self._caller)
