"""Reads a request's body within limits, and parses it into a pydantic model. Used by all routes."""

from __future__ import annotations

import asyncio
import codecs
import pickle
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Generic, ParamSpec, TypeVar

import structlog
from fastapi import Request
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect
from starlette.types import Message

from proxy.api.http import json_shape
from proxy.api.http.authentication import caller_name
from proxy.api.http.json_shape import JsonLimits
from proxy.api.http.known_bodies import GROWING, CutBody, KnownBodies, Rest, cut_body
from proxy.api.http.validation_errors import refusal
from proxy.domain.errors import ErrorCode, InvalidRequest, RateLimited, RequestError, echoed
from proxy.domain.identity import tenant_of
from proxy.domain.record import StageName, running_record
from proxy.domain.sandbox import Sandbox, TooCostly

Body = TypeVar("Body", bound=BaseModel)
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
JSON_TYPE = "application/json"

is_large: ContextVar[bool] = ContextVar("is_large", default=False)
"""Whether the running request's body, or what it names, was parsed in the sandbox."""


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
        self._known = KnownBodies()
        self._sandbox = sandbox
        self._in_flight = in_flight

    async def read(self, request: Request, kind: type[Body]) -> Body:
        """The parsed body. One that comes in one cheap piece is parsed at once.

        Raises:
            RequestError: what `received` raises, or `parse` refuses the body.
            ClientDisconnect: the client disconnected before the end of the body.
        """
        began, error = perf_counter(), None
        try:
            _check_headers(request, self.limits)
            first = await request.receive()
            data = first.get("body", b"")
            if data and not first.get("more_body", False) and json_shape.is_cheap(data):
                return parse(data, kind, limits=self.limits)
            async with self.received(request, first) as data:
                return await self.parse(data, kind, caller_name(request.scope))
        except BaseException as raised:
            error = raised
            raise
        finally:
            running_record().passed(StageName.BODY, began, error)

    @asynccontextmanager
    async def received(
        self, request: Request, first: Message | None = None
    ) -> AsyncIterator[bytes]:
        """The body as it is; its bytes count as in flight until the end of the `async with`.

        first: a message of the body that was received already.

        Raises:
            RequestError: the body is compressed, too large, or comes from a web page with another
                type than JSON.
            RateLimited: its room was needed for other bodies before it was complete.
            ClientDisconnect: the client disconnected before the end of the body.
        """
        _check_headers(request, self.limits)
        task, is_cut = asyncio.current_task(), False

        def cut_off() -> None:
            nonlocal is_cut
            is_cut = True
            if task is not None:
                task.cancel()

        body = ArrivingBody(self._in_flight, cut_off)
        try:
            try:
                data = await self._received(request, first, body)
            except asyncio.CancelledError:
                # Python 3.11 counts who else has cancelled the task
                uncancel = getattr(task, "uncancel", None)
                if not is_cut or (uncancel is not None and uncancel()):
                    raise
                raise no_room() from None
            body.complete()
            yield data
        finally:
            body.close()

    async def _received(
        self, request: Request, message: Message | None, body: ArrivingBody
    ) -> bytes:
        """Reading stops beyond the limit."""
        pieces: list[bytes] = []
        while body.bytes <= self.limits.bytes:
            if message is None:
                message = await request.receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            pieces.append(message.get("body", b""))
            body.add(len(pieces[-1]))
            if not message.get("more_body", False):
                break
            message = None
        if body.bytes > self.limits.bytes:
            raise _too_large(self.limits)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    @contextmanager
    def held(self, data: bytes) -> Iterator[None]:
        """A WebSocket's message, whose bytes count as in flight until the end of the `with`.

        Raises RateLimited: there is no room.
        """
        is_large.set(False)  # a connection has many messages
        message = ArrivingBody(self._in_flight, lambda: None)
        message.complete()
        message.add(len(data))
        try:
            yield
        finally:
            message.close()

    async def parse(self, data: bytes, kind: type[Body], caller: str) -> Body:
        """Parses a cheap text on the event loop, any other in the sandbox.

        Raises:
            RequestError: the text is too large, too complex, too costly to check, not JSON, or
                does not fit the model.
        """
        if len(data) > self.limits.bytes or json_shape.is_cheap(data):
            return parse(data, kind, limits=self.limits)
        is_large.set(True)
        owner, data = tenant_of(caller), data.removeprefix(codecs.BOM_UTF8)
        has_room = json_shape.is_surely_within(data, self.limits.json)
        if has_room and (rest := self._known.rest(data, kind, owner)) is not None:
            with suppress(RequestError):  # the error is that of the whole text
                body = await converted(parse, rest.data, kind, limits=self.limits, known=rest)
                self._known.keep(data, body, owner, rest.cut, rest.replaces)
                return body
        try:
            parsed = await self._sandbox.run(caller, parse_large, data, kind, limits=self.limits)
        except TooCostly as error:
            raise InvalidRequest(
                f"The body cannot be checked: {error}.", code=ErrorCode.INVALID_JSON, param=None
            ) from error
        body, cut = parsed.body, parsed.cut
        if cut is not None:
            items = list[Any]()
            for piece in parsed.items:
                items += pickle.loads(piece)
                await asyncio.sleep(0)
            body = body.model_copy(update={cut.name: items})
            self._known.keep(data, body, owner, cut)
        return body


async def converted(
    function: Callable[Arguments, Result], *args: Arguments.args, **kwargs: Arguments.kwargs
) -> Result:
    """Calls a function that converts the running request's body: in a thread if the body is large,
    since that takes half as long as to parse it. Values would cost more to send from the sandbox.
    """
    if is_large.get():
        return await asyncio.to_thread(function, *args, **kwargs)
    return function(*args, **kwargs)


def _check_headers(request: Request, limits: BodyLimits) -> None:
    headers = dict(reversed(request.scope["headers"]))  # the first of equal names
    coding = headers.get(b"content-encoding", b"identity").decode("latin-1")
    if coding.lower() not in ("", "identity"):
        raise RequestError(
            f"The body is compressed (Content-Encoding: {echoed(coding)}): send it as it is.",
            code=ErrorCode.UNSUPPORTED_ENCODING,
        )
    if b"origin" in headers:
        given = headers.get(b"content-type", b"").decode("latin-1")
        if not _is_json(given):
            raise RequestError(
                f"The Content-Type of a request from a web page must be {JSON_TYPE} (given: "
                f"{echoed(given)}).",
                code=ErrorCode.UNSUPPORTED_CONTENT_TYPE,
            )
    if int(headers.get(b"content-length", 0)) > limits.bytes:  # the HTTP parser lets digits pass
        raise _too_large(limits)


def _is_json(content_type: str) -> bool:
    """Whether it is a JSON type. Browsers send these to another origin only if CORS allows it."""
    kind = content_type.partition(";")[0].strip().lower()
    return kind == JSON_TYPE or (kind.startswith("application/") and kind.endswith("+json"))


def parse(data: bytes, kind: type[Body], *, limits: BodyLimits, known: Rest | None = None) -> Body:
    """Raises RequestError: the text is too large, too complex, not JSON, or does not fit `kind`."""
    if len(data) > limits.bytes:
        raise _too_large(limits)
    data = data.removeprefix(codecs.BOM_UTF8)  # as RFC 8259, 8.1 allows
    if fault := json_shape.fault(data, limits.json):
        raise InvalidRequest(f"The body {fault}.", code=ErrorCode.INVALID_JSON, param=None)
    try:
        return kind.model_validate_json(data, context=known)
    except ValidationError as error:
        raise refusal(error, kind) from error


AT_ONCE = 32  # items that are unpickled at once: a millisecond, usually


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedBody(Generic[Body]):
    """A large body. items: pickled, of its list that grows, which is empty in the body."""

    body: Body
    cut: CutBody | None = None
    items: tuple[bytes, ...] = ()


def parse_large(data: bytes, kind: type[Body], *, limits: BodyLimits) -> ParsedBody[Body]:
    """Raises as `parse`."""
    body = parse(data, kind, limits=limits)
    cut = cut_body(data) if not kind.model_fields.keys().isdisjoint(GROWING) else None
    if cut is None:
        return ParsedBody(body=body)
    items = getattr(body, cut.name)
    pieces = (pickle.dumps(items[at : at + AT_ONCE]) for at in range(0, len(items), AT_ONCE))
    return ParsedBody(body=body.model_copy(update={cut.name: []}), cut=cut, items=tuple(pieces))


def _too_large(limits: BodyLimits) -> RequestError:
    return RequestError(
        f"The request body is larger than {limits.bytes} bytes (the setting MAX_REQUEST_SIZE_MB).",
        code=ErrorCode.REQUEST_TOO_LARGE,
    )


logger = structlog.get_logger(__name__)

RETRY_AFTER_S = 5.0
MOST_BODIES_BYTES = 48_000_000  # of all bodies, unless single ones may be large


class BytesInFlight:
    """Shared by all HTTP bodies and WebSocket messages of one process."""

    def __init__(self, most: int) -> None:
        self.bytes = 0
        self.most = most
        self.incomplete: dict[ArrivingBody, None] = {}  # oldest first


class ArrivingBody:
    """One body or message. Its reader must close it, however it ends.

    cut_off: called when its room has been given to other bodies.
    """

    __slots__ = ("_flight", "bytes", "cut_off")

    def __init__(self, flight: BytesInFlight, cut_off: Callable[[], None]) -> None:
        self.bytes = 0
        self.cut_off = cut_off
        self._flight = flight
        flight.incomplete[self] = None

    def add(self, count: int) -> None:
        """Counts more received bytes, and cuts off older bodies to make room for them.

        Raises:
            RateLimited: there is no room, and no older body to cut off.
        """
        flight = self._flight
        self.bytes += count
        flight.bytes += count
        while flight.bytes > flight.most:
            oldest = next(iter(flight.incomplete), None)
            if oldest is None or oldest is self:
                self.close()
                raise no_room()
            logger.warning(
                "body cut off",
                reason="too many bytes in flight",
                bytes=oldest.bytes,
                advice="find the clients that send large bodies slowly, or run another proxy",
            )
            oldest.close()
            oldest.cut_off()

    def complete(self) -> None:
        """Marks the body as received: it keeps its room until closed, and cannot be cut off."""
        self._flight.incomplete.pop(self, None)

    def close(self) -> None:
        self.complete()
        self._flight.bytes -= self.bytes
        self.bytes = 0


def no_room() -> RateLimited:
    return RateLimited(
        "The server is receiving too many large requests at present: send it again later.",
        retry_after_s=RETRY_AFTER_S,
        code=ErrorCode.QUEUE_FULL,
    )
