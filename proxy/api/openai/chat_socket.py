"""The chat WebSocket: messages are chat requests and cancellations."""

from __future__ import annotations

from contextlib import aclosing
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter, WebSocket
from pydantic import Discriminator, RootModel, Tag

from proxy import background
from proxy.api import errors
from proxy.api.http.request_socket import RequestSocket, SocketParts, socket_route
from proxy.api.http.stream_format import Annotation, Part, Payload
from proxy.api.openai.chat_body import ChatCompletionBody
from proxy.api.openai.field_types import RequestBody
from proxy.api.openai.generation_body import RequestId
from proxy.api.openai.request_builder import RequestBuilder
from proxy.domain.request import Delivery
from proxy.generation.service import Service

PATH = "/v1/chat/completions/ws"


class SocketChatBody(ChatCompletionBody):
    """A chat request. Every message that answers it has its `request_id`, if it has one."""

    stream: Literal[True] = True


class CancelBody(RequestBody):
    """Stops the request with that id; without an id, all requests of this socket."""

    type: Literal["cancel"]
    request_id: RequestId | None = None


def _kind(message: Any) -> str:
    """Tags in angle brackets stay out of error paths."""
    is_cancel = isinstance(message, dict) and message.get("type") == "cancel"
    return "<cancel>" if is_cancel else "<request>"


class SocketMessage(
    RootModel[
        Annotated[
            Annotated[CancelBody, Tag("<cancel>")] | Annotated[SocketChatBody, Tag("<request>")],
            Discriminator(_kind),
        ]
    ]
):
    """A chat request or a cancellation."""


def routes(service: Service, builder: RequestBuilder, parts: SocketParts) -> APIRouter:
    return socket_route(PATH, parts, partial(ChatSocket, service, builder, parts))


class ChatSocket(RequestSocket):
    path, key = PATH, "request_id"

    def __init__(
        self,
        service: Service,
        builder: RequestBuilder,
        parts: SocketParts,
        websocket: WebSocket,
    ) -> None:
        super().__init__(websocket, parts)
        self._service = service
        self._builder = builder

    async def _received(self, data: bytes) -> None:
        body = (await self._parts.bodies.parse(data, SocketMessage, self._caller)).root
        if isinstance(body, CancelBody):
            await self._cancel(body.request_id)
        else:
            self._begin(body)

    async def _cancel(self, request_id: str | None) -> None:
        """Cancels requests. One that is not found has just ended and sent its last message."""
        keys = [key for key in self._running if request_id in (None, key)]
        tasks = [(key, self._running.pop(key)) for key in keys]
        await background.end({task for _, task in tasks})
        for key, task in tasks:
            if task.cancelled():
                await self._send({"type": "done"}, key)

    async def _streamed(self, body: SocketChatBody) -> Payload:
        exchange = await self._builder.chat(body, self._caller)
        request, card, renderer = exchange.request, exchange.card, exchange.renderer
        generation = self._service.generate(request, card, Delivery.LIVE)
        async with aclosing(generation.events) as events:
            async for event in events:
                for part in renderer.chunks(event):
                    await self._send(_message(part), body.request_id)
        return {"type": "done"}

    def _error(self, error: Exception) -> Payload:
        return {"type": "error", **errors.body_of(error)}


def _message(part: Part) -> Payload:
    if isinstance(part, Annotation):
        return {"type": "annotation", "name": part.name, "value": part.value}
    return part
