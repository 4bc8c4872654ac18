"""Reads a request's body within limits, and parses it into a pydantic model. Used by all routes."""

from __future__ import annotations

import asyncio
import codecs
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import structlog
from fastapi import Request
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect

from proxy.api.http import json_shape
from proxy.api.http.authentication import caller_name
from proxy.api.http.json_shape import JsonLimits
from proxy.api.http.validation_errors import refusal
from proxy.domain.errors import ErrorCode, InvalidRequest, RateLimited, RequestError, echoed
from proxy.domain.record import StageName, stage
from proxy.domain.sandbox import Sandbox, TooCostly

Body = TypeVar("Body", bound=BaseModel)
JSON_TYPE = "application/json"


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyLimits:
    """Limits of one HTTP body or WebSocket message. json: limits of its structure."""

    bytes: int = 2_000_000
    json: JsonLimits = field(default_factory=JsonLimits)


class BodyReader:
    """Reads and parses bodies.

    `in_flight`: counts the bytes of all bodies of this process that are not parsed yet.
    """

    def __init__(self, limits: BodyLimits, sandbox: Sandbox, in_flight: BytesInFlight) -> None:
        self.limits = limits
        self._sandbox = sandbox
        self._in_flight = in_flight

    async def read(self, request: Request, kind: type[Body]) -> Body:
        """The parsed body.

        Raises:
            RequestError: the body is compressed, comes from a web page with another type than
                JSON, or `parse` refuses it.
            ClientDisconnect: the client disconnected before the end of the body.
        """
        with stage(StageName.BODY):
            async with self.received(request) as data:
                return await self.parse(data, kind, caller_name(request.scope))

    def received(self, request: Request) -> ReceivedBody:
        return ReceivedBody(request, self.limits, self._in_flight)

    async def parse(self, data: bytes, kind: type[Body], caller: str) -> Body:
        """Parses a cheap text on the event loop, any other in the sandbox.

        Raises:
            RequestError: the text is too large, too complex, too costly to check, not JSON, or
                does not fit the model.
        """
        if len(data) > self.limits.bytes or json_shape.is_cheap(data):
            return parse(data, kind, limits=self.limits)
        try:
            return await self._sandbox.run(caller, parse, data, kind, limits=self.limits)
        except TooCostly as error:
            raise InvalidRequest(
                f"The body cannot be checked: {error}.", code=ErrorCode.INVALID_JSON, param=None
            ) from error


class ReceivedBody:
    """`async with` gives the body as it is; its bytes count as in flight until the end.

    Raises:
        RequestError: the body is compressed, too large, or comes from a web page with another type
            than JSON.
        RateLimited: its room was needed for other bodies before it was complete.
        ClientDisconnect: the client disconnected before the end of the body.
    """

    __slots__ = ("_body", "_in_flight", "_is_cut", "_limits", "_request", "_task")

    def __init__(self, request: Request, limits: BodyLimits, in_flight: BytesInFlight) -> None:
        self._request = request
        self._limits = limits
        self._in_flight = in_flight
        self._is_cut = False

    async def __aenter__(self) -> bytes:
        _check_headers(self._request, self._limits)
        self._task = asyncio.current_task()
        self._body = self._in_flight.arriving(self._cut_off)
        try:
            data = await self._received()
            if len(data) > self._limits.bytes:
                raise _too_large(self._limits)
        except BaseException as error:
            self._body.close()
            if self._is_cut and isinstance(error, asyncio.CancelledError) and self._was_only_cut():
                raise no_room() from None
            raise
        self._body.complete()
        return data

    async def __aexit__(self, *_: object) -> None:
        self._body.close()

    async def _received(self) -> bytes:
        """Reading stops beyond the limit."""
        pieces, size, has_more = [], 0, True
        while has_more and size <= self._limits.bytes:
            message = await self._request.receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            piece = message.get("body", b"")
            self._body.add(len(piece))
            pieces.append(piece)
            size += len(piece)
            has_more = message.get("more_body", False)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _cut_off(self) -> None:
        self._is_cut = True
        if self._task is not None:
            self._task.cancel()

    def _was_only_cut(self) -> bool:
        """Whether nobody else has cancelled the task, too: Python 3.11 counts them."""
        task = self._task
        return task is None or not hasattr(task, "uncancel") or not task.uncancel()


def _check_headers(request: Request, limits: BodyLimits) -> None:
    headers = dict(reversed(request.scope["headers"]))  # the first of equal names
    coding = headers.get(b"content-encoding", b"identity").decode("latin-1")
    if coding.lower() not in ("", "identity"):
        raise RequestError(
            f"The body is compressed (Content-Encoding: {echoed(coding)}): send it as it is.",
            code=ErrorCode.UNSUPPORTED_ENCODING,
            param=None,
        )
    if b"origin" in headers:
        given = headers.get(b"content-type", b"").decode("latin-1")
        if not _is_json(given):
            raise RequestError(
                f"The Content-Type of a request from a web page must be {JSON_TYPE} (given: "
                f"{echoed(given)}).",
                code=ErrorCode.UNSUPPORTED_CONTENT_TYPE,
                param=None,
            )
    if int(headers.get(b"content-length", 0)) > limits.bytes:  # the HTTP parser lets digits pass
        raise _too_large(limits)


def _is_json(content_type: str) -> bool:
    """Whether it is a JSON type. Browsers send these to another origin only if CORS allows it."""
    kind = content_type.partition(";")[0].strip().lower()
    return kind == JSON_TYPE or (kind.startswith("application/") and kind.endswith("+json"))


def parse(data: bytes, kind: type[Body], *, limits: BodyLimits) -> Body:
    """Raises RequestError: the text is too large, too complex, not JSON, or does not fit `kind`."""
    if len(data) > limits.bytes:
        raise _too_large(limits)
    data = data.removeprefix(codecs.BOM_UTF8)  # as RFC 8259, 8.1 allows
    if fault := json_shape.fault(data, limits.json):
        raise InvalidRequest(f"The body {fault}.", code=ErrorCode.INVALID_JSON, param=None)
    try:
        return kind.model_validate_json(data)
    except ValidationError as error:
        raise refusal(error) from error


def _too_large(limits: BodyLimits) -> RequestError:
    return RequestError(
        f"The request body is larger than {limits.bytes} bytes.",
        code=ErrorCode.REQUEST_TOO_LARGE,
        param=None,
    )


logger = structlog.get_logger(__name__)

RETRY_AFTER_S = 5.0
MOST_BODIES_BYTES = 48_000_000  # of all bodies, unless single ones may be large


class BytesInFlight:
    """Shared by all HTTP bodies and WebSocket messages of one process."""

    def __init__(self, most: int) -> None:
        self.bytes = 0
        self._most = most
        self.incomplete: dict[ArrivingBody, None] = {}  # oldest first

    def arriving(self, cut_off: Callable[[], None]) -> ArrivingBody:
        """Registers a body. `cut_off`: called when its room has been given to other bodies."""
        body = ArrivingBody(self, cut_off)
        self.incomplete[body] = None
        return body

    def make_room(self, body: ArrivingBody) -> None:
        """Raises RateLimited: there is no room for the body, and no other one to cut off."""
        while self.bytes > self._most:
            oldest = next(iter(self.incomplete), None)
            if oldest is None or oldest is body:
                body.close()
                raise no_room()
            logger.warning(
                "body cut off",
                reason="too many bytes in flight",
                bytes=oldest.bytes,
                advice="find the clients that send large bodies slowly, or run another proxy",
            )
            oldest.close()
            oldest.cut_off()


class ArrivingBody:
    """One body or message. Its reader must close it, however it ends."""

    __slots__ = ("_flight", "bytes", "cut_off")

    def __init__(self, flight: BytesInFlight, cut_off: Callable[[], None]) -> None:
        self.bytes = 0
        self.cut_off = cut_off
        self._flight = flight

    def add(self, count: int) -> None:
        """Counts more received bytes. Raises RateLimited: there is no room for them."""
        self.bytes += count
        self._flight.bytes += count
        self._flight.make_room(self)

    def complete(self) -> None:
        """Marks the body as received: it keeps its room until closed, and cannot be cut off."""
        self._flight.incomplete.pop(self, None)

    def close(self) -> None:
        self._flight.incomplete.pop(self, None)
        self._flight.bytes -= self.bytes
        self.bytes = 0


def no_room() -> RateLimited:
    return RateLimited(
        "The server is receiving too many large requests at present: send it again later.",
        retry_after_s=RETRY_AFTER_S,
        code=ErrorCode.QUEUE_FULL,
    )
