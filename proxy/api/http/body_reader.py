"""Reads a request's body within limits, and parses it into a pydantic model. Used by all routes."""

from __future__ import annotations

import asyncio
import codecs
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
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
from proxy.domain.sandbox import Sandbox, TooCostly
from proxy.domain.timeline import StageName, stage

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

    @asynccontextmanager
    async def received(self, request: Request) -> AsyncIterator[bytes]:
        """The body as it is; its bytes count as in flight until the `async with` ends.

        Raises RequestError (compressed, too large, from a web page), ClientDisconnect.
        """
        _check_headers(request, self.limits)
        cut_off = CutOff()
        body = self._in_flight.arriving(cut_off.cancel)
        try:
            with cut_off:
                data = await _received(request, body, self.limits)
                body.complete()
            if len(data) > self.limits.bytes:
                raise _too_large(self.limits)
            yield data
        finally:
            body.close()

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


async def _received(request: Request, body: ArrivingBody, limits: BodyLimits) -> bytes:
    """The body's bytes; reading stops beyond the limit. Raises RequestError, ClientDisconnect."""
    pieces, size, has_more = [], 0, True
    while has_more and size <= limits.bytes:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        piece = message.get("body", b"")
        body.add(len(piece))
        pieces.append(piece)
        size += len(piece)
        has_more = message.get("more_body", False)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _check_headers(request: Request, limits: BodyLimits) -> None:
    coding = request.headers.get("content-encoding", "identity")
    if coding.lower() not in ("", "identity"):
        raise RequestError(
            f"The body is compressed (Content-Encoding: {echoed(coding)}): send it as it is.",
            code=ErrorCode.UNSUPPORTED_ENCODING,
            param=None,
        )
    if "origin" in request.headers and not _is_json(request.headers.get("content-type", "")):
        given = request.headers.get("content-type", "")
        raise RequestError(
            f"The Content-Type of a request from a web page must be {JSON_TYPE} (given: "
            f"{echoed(given)}).",
            code=ErrorCode.UNSUPPORTED_CONTENT_TYPE,
            param=None,
        )
    announced = request.headers.get("content-length", "0")  # the HTTP parser lets only digits pass
    if int(announced) > limits.bytes:
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


class BytesInFlight:
    """Shared by all HTTP bodies and WebSocket messages of one process."""

    def __init__(self, most: int) -> None:
        self.bytes = 0
        self._most = most
        self._arriving: dict[ArrivingBody, None] = {}  # oldest first

    def arriving(self, cut_off: Callable[[], None]) -> ArrivingBody:
        """Registers a body. `cut_off`: called when its room has been given to other bodies."""
        body = ArrivingBody(self, cut_off)
        self._arriving[body] = None
        return body

    def _add(self, body: ArrivingBody, count: int) -> None:
        """Raises RateLimited: there is no room, and no other body to cut off."""
        self.bytes += count
        body.bytes += count
        while self.bytes > self._most:
            oldest = next(iter(self._arriving), None)
            if oldest is None or oldest is body:
                body.close()
                raise no_room()
            logger.warning(
                "body cut off",
                reason="too many bytes in flight",
                bytes=oldest.bytes,
                advice="raise MAX_BODIES_MB if there is memory, or find the clients that send "
                "large bodies slowly",
            )
            oldest.close()
            oldest.cut_off()

    def _release(self, body: ArrivingBody) -> None:
        self._arriving.pop(body, None)
        self.bytes -= body.bytes
        body.bytes = 0

    def _complete(self, body: ArrivingBody) -> None:
        self._arriving.pop(body, None)


class ArrivingBody:
    """One body or message. Its reader must close it, however it ends."""

    def __init__(self, flight: BytesInFlight, cut_off: Callable[[], None]) -> None:
        self.bytes = 0
        self.cut_off = cut_off
        self._flight = flight

    def add(self, count: int) -> None:
        """Counts more received bytes. Raises RateLimited: there is no room for them."""
        self._flight._add(self, count)

    def complete(self) -> None:
        """Marks the body as received: it keeps its room until closed, and cannot be cut off."""
        self._flight._complete(self)

    def close(self) -> None:
        self._flight._release(self)


class CutOff:
    """Ends the `with` of the task that made it when the body's room is needed for others.

    Raises:
        RateLimited: in place of the cancellation.
    """

    __slots__ = ("_is_cut", "_task")

    def __init__(self) -> None:
        self._task = asyncio.current_task()
        self._is_cut = False

    def cancel(self) -> None:
        self._is_cut = True
        if self._task is not None:
            self._task.cancel()

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not self._is_cut or not isinstance(error, asyncio.CancelledError):
            return
        task = self._task
        if task is not None and hasattr(task, "uncancel") and task.uncancel():
            return  # others have cancelled the task, too: Python 3.11 counts them
        raise no_room() from None


def no_room() -> RateLimited:
    return RateLimited(
        "The server is receiving too many large requests at present: send it again later.",
        retry_after_s=RETRY_AFTER_S,
        code=ErrorCode.QUEUE_FULL,
    )
