"""A WebSocket whose messages are requests, each in a task of its own. Closing the socket cancels
them all. The protocols' sockets are subclasses.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar

import orjson
import structlog
from fastapi import APIRouter, WebSocket
from pydantic import BaseModel
from starlette.types import Message
from starlette.websockets import WebSocketDisconnect, WebSocketState

from proxy import background
from proxy.access.concurrency import SharedConcurrency
from proxy.api import errors
from proxy.api.http.application import new_request_id
from proxy.api.http.authentication import ADMIT, caller_name
from proxy.api.http.body_reader import BodyReader
from proxy.api.http.hosts import HostPolicy
from proxy.api.http.stream_format import Payload
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
from proxy.telemetry.request_log import RequestLog

logger = structlog.get_logger(__name__)

GOING_AWAY, FORBIDDEN_ORIGIN, RESTART = 1001, 1008, 1012
MOST_REQUESTS = 8  # at once on one socket


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketParts:
    """What all sockets use.

    origins: web pages that may connect, besides this server's own. stopping: set when the server
    is about to stop. connected: counts the sockets of both routes.
    """

    stopping: asyncio.Event
    origins: tuple[str, ...]
    hosts: HostPolicy
    bodies: BodyReader
    log: RequestLog
    connected: SharedConcurrency


class RequestSocket(ABC):
    """One client's socket, from its acceptance to its end.

    key: the name of the field that tells the requests of one socket apart.
    """

    path: ClassVar[str]
    key: ClassVar[str]

    def __init__(self, websocket: WebSocket, parts: SocketParts) -> None:
        self._websocket = websocket
        self._caller = caller_name(websocket.scope)
        self._parts = parts
        self._tasks: set[asyncio.Task[None]] = set()
        self._running: dict[str | None, asyncio.Task[None]] = {}  # by key

    @abstractmethod
    async def _received(self, data: bytes) -> None:
        """Parses a message, and begins or cancels what it asks for. Raises ProxyError."""

    @abstractmethod
    async def _streamed(self, body: Any) -> Payload | None:
        """Sends what answers a request, and returns the last message, if there is one more."""

    @abstractmethod
    def _error(self, error: Exception) -> Payload: ...

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
                del message  # an idle socket keeps nothing of it
                received = asyncio.ensure_future(self._websocket.receive())
            await self._websocket.close(GOING_AWAY, "the server stops")
        finally:
            drained.cancel()
            received.cancel()

    async def _drained(self) -> None:
        """Returns when the server is stopping and no request of this socket runs any more."""
        await self._parts.stopping.wait()
        while self._tasks:
            await asyncio.wait(tuple(self._tasks))

    async def _take(self, data: bytes) -> None:
        try:
            with self._parts.bodies.held(data):
                await self._received(data)
        except WebSocketDisconnect:
            raise
        except Exception as error:
            with self._parts.log.recorded("WEBSOCKET", self.path):
                await self._send(self._error(error), await self._key_in(data))

    def _begin(self, body: Any) -> None:
        """Starts a request.

        Raises:
            ProxyError: its key is in use, too many requests run, or the server is stopping.
        """
        if self._parts.stopping.is_set():
            raise ShuttingDown("The server is shutting down: connect again.")
        key = getattr(body, self.key)
        if key in self._running:
            raise InvalidRequest(
                f"A request without '{self.key}' is running on this socket: give each an id."
                if key is None
                else f"The request {echoed(key)} is still running on this socket.",
                code=ErrorCode.DUPLICATE_REQUEST_ID,
                param=self.key,
            )
        if len(self._running) >= MOST_REQUESTS:
            raise RateLimited(f"A socket runs at most {MOST_REQUESTS} requests at once.")
        task = asyncio.ensure_future(self._answer(body))
        self._running[key] = task
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _key_in(self, data: bytes) -> str | None:
        """The key in a refused message, for the refusal; None if the message is over the limits."""
        with suppress(RequestError):
            found = await self._parts.bodies.parse(data, AnyMessage, self._caller)
            return getattr(found, self.key, None)
        return None

    async def _answer(self, body: Any) -> None:
        request_id, key = new_request_id(), getattr(body, self.key)
        headers = self._websocket.scope["headers"]
        log = self._parts.log
        recorded = log.recorded("WEBSOCKET", self.path, request_id=request_id, headers=headers)
        with recorded, suppress(WebSocketDisconnect):
            try:
                await self._websocket.scope[ADMIT](running_record())  # its key may be revoked since
                last = await self._streamed(body)
            except WebSocketDisconnect:
                raise
            except Exception as error:
                last = self._error(error)
            finally:
                self._running.pop(key, None)  # before `last`: its key is then free
            if last is not None:
                await self._send(last, key)

    async def _send(self, message: Payload, key: str | None) -> None:
        if self._websocket.application_state is not WebSocketState.CONNECTED:
            raise WebSocketDisconnect
        if key is not None:
            message = {**message, self.key: key}
        await self._websocket.send_text(orjson.dumps(message).decode())


class AnyMessage(BaseModel):
    """Any message, parsed only for its key, so that its refusal can name it."""

    request_id: str | None = None
    stream_id: str | None = None


def socket_route(
    path: str, parts: SocketParts, socket: Callable[[WebSocket], RequestSocket]
) -> APIRouter:
    router = APIRouter()

    @router.websocket(path)
    async def serve_socket(websocket: WebSocket) -> None:
        if not _may_connect(websocket, parts.origins, parts.hosts):
            await websocket.close(FORBIDDEN_ORIGIN)  # before the accept, so the client gets a 403
            return
        try:
            with parts.connected.permits(caller_name(websocket.scope)):
                await socket(websocket).serve()
        except RateLimited as refusal:
            headers = websocket.scope["headers"]
            with parts.log.recorded("WEBSOCKET", path, headers=headers) as record:
                record.status = refusal.code.status
                await websocket.send_denial_response(errors.response_of(refusal, path))

    return router


def _data_of(message: Message) -> bytes:
    """The bytes of a text or binary message."""
    text = message.get("text")
    return bytes(message["bytes"]) if text is None else str(text).encode()


def _may_connect(websocket: WebSocket, origins: tuple[str, ...], hosts: HostPolicy) -> bool:
    """Whether the origin may connect. Browsers let any page connect, so the server must check."""
    origin = websocket.headers.get("origin")
    if origin is None or "*" in origins or origin in origins:
        return True
    if hosts.is_own_origin(origin, websocket.headers.get("host", "")):
        return True
    logger.info("socket refused", origin=in_short(origin))
    return False
