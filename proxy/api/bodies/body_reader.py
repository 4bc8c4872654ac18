"""Reads a request's body within limits, and parses it into a pydantic model. Used by all routes."""

from __future__ import annotations

import codecs
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect

from proxy.api.bodies import json_shape
from proxy.api.bodies.bytes_in_flight import ArrivingBody, BytesInFlight, CutOff
from proxy.api.bodies.caller_name import caller_name
from proxy.api.bodies.json_shape import JsonLimits
from proxy.api.bodies.validation_errors import refusal
from proxy.domain.errors import ErrorCode, InvalidRequest, RequestError, echoed
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
