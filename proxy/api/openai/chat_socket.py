"""The chat WebSocket: each request runs in its own task; closing the socket cancels them all."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from typing import Annotated, Any, Literal

import orjson
import structlog
from fastapi import APIRouter, WebSocket
from pydantic import BaseModel, Discriminator, RootModel, Tag
from starlette.types import Message
from starlette.websockets import WebSocketDisconnect, WebSocketState

from proxy import background
from proxy.api import errors
from proxy.api.http.answer import Annotation, Part, Payload, protocol_names
from proxy.api.http.application import new_request_id
from proxy.api.http.authentication import ADMIT, caller_name
from proxy.api.http.body_reader import BodyReader
from proxy.api.http.hosts import HostPolicy
from proxy.api.openai.chat_body import ChatCompletionBody
from proxy.api.openai.field_types import RequestBody
from proxy.api.openai.generation_body import RequestId
from proxy.api.openai.request_builder import RequestBuilder
from proxy.domain.errors import (
    ErrorCode,
    InvalidRequest,
    RateLimited,
    RequestError,
    ShuttingDown,
    echoed,
    in_short,
)
from proxy.domain.record import running_record
from proxy.domain.request import Delivery
from proxy.generation.service import Service
from proxy.telemetry.request_log import RequestLog

logger = structlog.get_logger(__name__)

PATH = "/v1/chat/completions/ws"
GOING_AWAY, FORBIDDEN_ORIGIN, RESTART = 1001, 1008, 1012
MOST_REQUESTS = 8  # at once on one socket


class SocketChatBody(ChatCompletionBody):
    """A chat request. Every message that answers it has its `request_id`, if it has one."""

    stream: Literal[True] = True


class CancelBody(RequestBody):
    """Stops the request with that id; without an id, all requests of this socket."""

    type: Literal["cancel"]
    request_id: RequestId | None = None


class AnyMessage(BaseModel):
    """Any message, parsed only for its id, so that its refusal can name it."""

    request_id: str | None = None


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


def routes(
    service: Service,
    builder: RequestBuilder,
    stopping: asyncio.Event,
    *,
    origins: tuple[str, ...],
    hosts: HostPolicy,
    bodies: BodyReader,
    log: RequestLog,
) -> APIRouter:
    """The route of the WebSocket.

    origins: web pages that may connect, besides this server's own. stopping: set when the server
    is about to stop.
    """
    router = APIRouter()

    @router.websocket(PATH)
    async def chat_socket(websocket: WebSocket) -> None:
        if not _may_connect(websocket, origins, hosts):
            await websocket.close(FORBIDDEN_ORIGIN)  # before the accept, so the client gets a 403
            return
        socket = ChatSocket(websocket, service, builder, stopping, bodies=bodies, log=log)
        await socket.serve()

    return router


class ChatSocket:
    """One client's socket, from its acceptance to its end."""

    def __init__(
        self,
        websocket: WebSocket,
        service: Service,
        builder: RequestBuilder,
        stopping: asyncio.Event,
        *,
        bodies: BodyReader,
        log: RequestLog,
    ) -> None:
        self._websocket = websocket
        self._service = service
        self._builder = builder
        self._caller = caller_name(websocket.scope)
        self._log = log
        self._stopping = stopping
        self._bodies = bodies
        self._tasks: set[asyncio.Task[None]] = set()
        self._running: dict[str | None, asyncio.Task[None]] = {}  # by request_id

    async def serve(self) -> None:
        """Runs until the client disconnects, or the server stops and this socket's requests end."""
        await self._websocket.accept()
        try:
            with suppress(WebSocketDisconnect):
                await self._take_messages()
        except asyncio.CancelledError:  # the drain is over
            await background.end(self._tasks)
            await self._websocket.close(RESTART)
            raise
        finally:
            await background.end(self._tasks)

    async def _take_messages(self) -> None:
        drained = asyncio.ensure_future(self._drained())
        received = asyncio.ensure_future(self._websocket.receive())
        try:
            while not drained.done():
                await asyncio.wait((drained, received), return_when=asyncio.FIRST_COMPLETED)
                if not received.done():
                    continue
                if (message := received.result())["type"] != "websocket.receive":
                    return
                await self._take(_data_of(message))
                received = asyncio.ensure_future(self._websocket.receive())
            await self._websocket.close(GOING_AWAY, "the server stops")
        finally:
            drained.cancel()
            received.cancel()

    async def _drained(self) -> None:
        """Returns when the server is stopping and no request of this socket runs any more."""
        await self._stopping.wait()
        while self._tasks:
            await asyncio.wait(tuple(self._tasks))

    async def _take(self, data: bytes) -> None:
        try:
            body = (await self._bodies.parse(data, SocketMessage, self._caller)).root
            if isinstance(body, CancelBody):
                await self._cancel(body.request_id)
            else:
                self._begin(body)
        except WebSocketDisconnect:
            raise
        except Exception as error:
            with self._log.recorded("WEBSOCKET", PATH):
                await self._send(_error_message(error), await self._request_id_in(data))

    def _begin(self, body: SocketChatBody) -> None:
        """Starts a request.

        Raises:
            ProxyError: its id is in use, too many requests run, or the server is stopping.
        """
        if self._stopping.is_set():
            raise ShuttingDown("The server is shutting down: connect again.")
        key = body.request_id
        if key in self._running:
            raise InvalidRequest(
                "A request without 'request_id' is running on this socket: give each an id."
                if key is None
                else f"The request {echoed(key)} is still running on this socket.",
                code=ErrorCode.DUPLICATE_REQUEST_ID,
                param="request_id",
            )
        if len(self._running) >= MOST_REQUESTS:
            raise RateLimited(f"A socket runs at most {MOST_REQUESTS} requests at once.")
        task = asyncio.ensure_future(self._answer(body))
        self._running[key] = task
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _request_id_in(self, data: bytes) -> str | None:
        """The id in a refused message, for the refusal; None if the message is over the limits."""
        with suppress(RequestError):
            return (await self._bodies.parse(data, AnyMessage, self._caller)).request_id
        return None

    async def _cancel(self, request_id: str | None) -> None:
        """Cancels requests. One that is not found has just ended and sent its last message."""
        keys = [key for key in self._running if request_id in (None, key)]
        tasks = [(key, self._running.pop(key)) for key in keys]
        await background.end({task for _, task in tasks})
        for key, task in tasks:
            if task.cancelled():
                await self._send({"type": "done"}, key)

    async def _answer(self, body: SocketChatBody) -> None:
        request_id = new_request_id()
        structlog.contextvars.bind_contextvars(request_id=request_id)
        headers = self._websocket.scope["headers"]
        recorded = self._log.recorded("WEBSOCKET", PATH, request_id=request_id, headers=headers)
        with recorded, suppress(WebSocketDisconnect):
            try:
                last = await self._streamed(body)
            finally:
                self._running.pop(body.request_id, None)  # before `last`: its id is then free
            await self._send(last, body.request_id)

    async def _streamed(self, body: SocketChatBody) -> Payload:
        """Sends the chunks, and returns the last message: done, or an error."""
        try:
            await self._websocket.scope[ADMIT](running_record())  # its key may be revoked since
            exchange = await self._builder.chat(body, self._caller)
            request, card, renderer = exchange.request, exchange.card, exchange.renderer
            with protocol_names(renderer.field_names):
                generation = self._service.generate(request, card, Delivery.LIVE)
                async with aclosing(generation.events) as events:
                    async for event in events:
                        for part in renderer.chunks(event):
                            await self._send(_message(part), body.request_id)
        except WebSocketDisconnect:
            raise
        except Exception as error:
            return _error_message(error)
        return {"type": "done"}

    async def _send(self, message: Payload, request_id: str | None) -> None:
        if self._websocket.application_state is not WebSocketState.CONNECTED:
            raise WebSocketDisconnect
        if request_id is not None:
            message = {**message, "request_id": request_id}
        await self._websocket.send_text(orjson.dumps(message).decode())


def _data_of(message: Message) -> bytes:
    """The bytes of a text or binary message."""
    text = message.get("text")
    return bytes(message["bytes"]) if text is None else str(text).encode()


def _message(part: Part) -> Payload:
    if isinstance(part, Annotation):
        return {"type": "annotation", "name": part.name, "value": part.value}
    return part


def _error_message(error: Exception) -> Payload:
    return {"type": "error", **errors.body_of(error)}


def _may_connect(websocket: WebSocket, origins: tuple[str, ...], hosts: HostPolicy) -> bool:
    """Whether the origin may connect. Browsers let any page connect, so the server must check."""
    origin = websocket.headers.get("origin")
    if origin is None or "*" in origins or origin in origins:
        return True
    if hosts.is_own_origin(origin, websocket.headers.get("host", "")):
        return True
    logger.info("socket refused", origin=in_short(origin))
    return False
