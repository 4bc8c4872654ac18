"""Gives requests with the same Idempotency-Key one answer. Called by `application`."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator, Iterable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass

from fastapi import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from proxy.access.limits.caller_meters import Standings
from proxy.access.limits.request_limiter import RequestLimiter
from proxy.api import errors
from proxy.api.http.authentication import caller_name
from proxy.api.http.body_reader import BodyReader
from proxy.api.http.client_disconnect import CancelOnDisconnect
from proxy.api.http.recorded_generation import Generation
from proxy.api.http.route_scopes import UNKEYED, RouteScopes
from proxy.domain import identity
from proxy.domain.errors import (
    Conflict,
    ErrorCode,
    InvalidRequest,
    ModelUnavailable,
    ProxyError,
    RateLimited,
    RequestError,
    ServiceError,
    ShuttingDown,
    echoed,
    unsupported,
)
from proxy.domain.identity import current_caller
from proxy.domain.record import running_record
from proxy.state.answer import (
    Head,
    JoinRefused,
    KeyedRequest,
    Notice,
    OpenAnswer,
    Outcome,
    Reason,
    digest,
)
from proxy.state.relay import Relay
from proxy.state.streams import StreamLost, StreamsUnavailable
from proxy.telemetry.metrics import IdempotencyMetrics

LARGE_BODY = 262_144  # bytes: its digest takes a millisecond or more, and is made in a thread
REPLAYED, ORIGINAL_ID = b"idempotent-replayed", b"x-original-request-id"
UNAVAILABLE = b"idempotency-unavailable"
LOST = (
    "This answer is lost: the proxy that generated it has ended, or it was read too slowly. Send "
    "the request again."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class IdempotencyParts:
    """is_closed: whether requests with a key are refused while the records cannot be used; else
    they run as if they had no key, and their answers say so. has_one_caller: callers without a name
    of their own are one, as in the settings.
    """

    relay: Relay
    bodies: BodyReader
    limiter: RequestLimiter
    metrics: IdempotencyMetrics
    is_closed: bool
    has_one_caller: bool


class Idempotency:
    """For POST requests with one of KEY_NAMES. Inside the checks of the caller and its limits,
    which hold for each request, and outside of the routes.
    """

    def __init__(self, app: ASGIApp, parts: IdempotencyParts, scopes: RouteScopes) -> None:
        self._app = app
        self._parts = parts
        self._scopes = scopes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        given = key_headers(scope["headers"])
        for prefix, why in UNKEYED.items():
            if scope["path"].startswith(prefix):
                raise unsupported(f"{why} Send the request without {KEY}.", param=KEY)
        async with self._parts.bodies.received(Request(scope, receive)) as body:
            request = await self._request(scope, given, body)
        generation = Generation(self._app, scope, body)
        del body
        try:
            answer = await self._parts.relay.open(request, generation)
        except JoinRefused as refused:
            raise self._refusal(refused) from None
        except StreamsUnavailable as error:
            await self._without_records(generation, scope, receive, send, str(error))
            return
        self._count(answer.outcome.value)
        if answer.outcome is not Outcome.GENERATED:
            generation.discard()
        async with aclosing(answer), self._counted(answer, scope):
            await self._send(answer, scope, receive, send)

    async def _request(self, scope: Scope, given: KeyHeaders, body: bytes) -> KeyedRequest:
        """Keys of one tenant share answers where they allow the same models. An address does
        not prove who calls, so callers with nothing else get no kept answer.
        """
        who = current_caller.get()
        is_shared = who.is_shared and not self._parts.has_one_caller
        address = caller_name(scope) if is_shared else ""
        route = f"{scope['path']}?{scope['query_string'].decode('latin-1')}"
        large = len(body) > LARGE_BODY
        sha256 = await asyncio.to_thread(hashlib.sha256, body) if large else hashlib.sha256(body)
        return KeyedRequest(
            id=digest((who.tenant, address, *sorted(who.models.patterns), route, given.key)),
            tenant=digest((who.tenant, address)),
            body=sha256.digest(),
            after=given.after,
            is_private=is_shared or self._scopes.at(scope["path"]).need is identity.Scope.ADMIN,
            is_shared=is_shared,
        )

    @asynccontextmanager
    async def _counted(self, answer: OpenAnswer, scope: Scope) -> AsyncIterator[None]:
        """Counts a request that generates nothing in the limits on requests."""
        caller = current_caller.get()
        standings: Standings | None = running_record().standings
        is_counted = self._scopes.at(scope["path"]).counts or not caller.has_limits
        if answer.outcome is Outcome.GENERATED or is_counted or standings is None:
            yield
        else:
            async with self._parts.limiter.counted(caller, standings, only_reads=True):
                yield

    async def _send(self, answer: OpenAnswer, scope: Scope, receive: Receive, send: Send) -> None:
        response = _Response(answer, scope, send)
        try:
            try:
                async with CancelOnDisconnect(receive):
                    await response.send()
            except ShuttingDown:
                if not answer.shut_down():
                    raise
                await response.send()  # with the error that ends the generation
        except JoinRefused as refused:
            raise self._refusal(refused) from None
        except (StreamLost, StreamsUnavailable):
            lost = ModelUnavailable(LOST)
            framing = self._scopes.at(scope["path"]).framing
            if response.begun is None:
                raise lost from None
            kind = dict(response.begun.headers).get("content-type", "").encode()
            if (b"content-type", kind) not in framing.headers:  # it is no stream
                running_record().error = "answer_lost"  # the connection is closed before the end
                return
            running_record().has_failed = True
            end = framing.error(errors.body_of(lost)) + framing.end
            await send(_body(end, has_more=False))

    def _refusal(self, refused: JoinRefused) -> Exception:
        error = _error_of(refused.reason)
        self._count(error.code.value)
        return error

    def _count(self, outcome: str) -> None:
        self._parts.metrics.count(outcome)
        running_record().idempotency = outcome

    async def _without_records(
        self, generation: Generation, scope: Scope, receive: Receive, send: Send, detail: str
    ) -> None:
        self._count("unavailable")
        if self._parts.is_closed:
            raise ServiceError(
                f"The records of {KEY} cannot be used at present. Try again later, or send the "
                "request without a key.",
                code=ErrorCode.IDEMPOTENCY_UNAVAILABLE,
                detail=detail,
            )

        async def send_and_say(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (UNAVAILABLE, b"true")]
            await send(message)

        await generation.run(scope, receive, send_and_say)


@dataclass(frozen=True, slots=True)
class _Route:
    """The route for the metrics, where another request generated the answer."""

    path: str


class _Response:
    """Sends an answer to one connection; a second `send` continues a cancelled one."""

    def __init__(self, answer: OpenAnswer, scope: Scope, send: Send) -> None:
        self._answer = answer
        self._scope = scope
        self._send = send
        self.begun: Head | None = None

    async def send(self) -> None:
        if self.begun is None:
            await self._begin(await self._answer.head())
        async with aclosing(self._answer.parts()) as parts:
            async for part in parts:
                data = part.data if isinstance(part, Notice) else b"".join(part)
                await self._send(_body(data, has_more=True))
        await self._send(_body(b"", has_more=False))

    async def _begin(self, head: Head) -> None:
        is_own = self._answer.outcome is Outcome.GENERATED
        named = (*head.headers, *head.own_headers) if is_own else head.headers
        headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in named]
        if not is_own:
            headers += [(REPLAYED, b"true"), (ORIGINAL_ID, head.request_id.encode("latin-1"))]
        if head.route:
            self._scope["route"] = _Route(head.route)
        await self._send({"type": "http.response.start", "status": head.status, "headers": headers})
        self.begun = head


def _body(data: bytes, *, has_more: bool) -> Message:
    return {"type": "http.response.body", "body": data, "more_body": has_more}


KEY, LAST_EVENT_ID = "Idempotency-Key", "Last-Event-ID"
LONGEST_KEY = 255
LONGEST_EVENT_ID = 15
KEY_NAMES = frozenset({KEY.lower().encode(), LAST_EVENT_ID.lower().encode()})
_PRINTABLE = re.compile(rf"[\x20-\x7e]{{1,{LONGEST_KEY}}}")
# A string of RFC 8941, as the IETF's draft wants it: \" and \\ stand for the second character.
_QUOTED = re.compile(r'"(?:[^"\\]|\\["\\])*"')
_EVENT_ID = re.compile(rf"[0-9]{{1,{LONGEST_EVENT_ID}}}")


@dataclass(frozen=True, slots=True)
class KeyHeaders:
    """after: the number of the last event that the client has received; 0 without one."""

    key: str
    after: int


def key_headers(headers: Iterable[tuple[bytes, bytes]]) -> KeyHeaders:
    """
    Raises:
        InvalidRequest: one of them is malformed, given twice, or Last-Event-ID has no key.
    """
    given, event_id = _only(headers, KEY), _only(headers, LAST_EVENT_ID)
    if given is None:
        raise InvalidRequest(
            f"{LAST_EVENT_ID} needs the {KEY} of the request that it continues.",
            param=LAST_EVENT_ID,
        )
    key = given
    if given.startswith('"'):
        if not _QUOTED.fullmatch(given):
            raise InvalidRequest(
                f"{KEY} begins with a quote, but is not a quoted string: {echoed(given)}", param=KEY
            )
        key = re.sub(r"\\(.)", r"\1", given[1:-1])
    if not _PRINTABLE.fullmatch(key):
        raise InvalidRequest(
            f"{KEY} must have 1 to {LONGEST_KEY} printable ASCII characters (given: "
            f"{echoed(given)}, {len(key)} characters).",
            param=KEY,
        )
    if event_id is not None and not _EVENT_ID.fullmatch(event_id):
        raise InvalidRequest(
            f"{LAST_EVENT_ID} must be the `id` of an event, a number of at most "
            f"{LONGEST_EVENT_ID} digits (given: {echoed(event_id)}).",
            param=LAST_EVENT_ID,
        )
    return KeyHeaders(key, int(event_id or 0))


def _only(headers: Iterable[tuple[bytes, bytes]], name: str) -> str | None:
    wanted = name.lower().encode()
    found = {value.decode("latin-1").strip() for each, value in headers if each == wanted}
    if len(found) > 1:
        raise InvalidRequest(
            f"The header {name} is given {len(found)} times: send one.", param=name
        )
    return next(iter(found), None)


REFUSALS = {
    Reason.OTHER_BODY: f"This {KEY} was used for a request with another body: use a new key for "
    "each request, and the same key only to send the same request again.",
    Reason.TOO_LARGE: f"The request with this {KEY} is still running, and its answer is too large "
    "to be sent from its beginning again. Wait until it has ended, or use another key.",
    Reason.PRIVATE: f"Another server has the request with this {KEY}, and its answer is private: "
    "it stays there. Use another key.",
    Reason.NOT_KEPT: f"The stream that {LAST_EVENT_ID} continues is not kept (any more). Send the "
    f"request without {LAST_EVENT_ID}.",
    Reason.UNKNOWN_EVENT: f"{LAST_EVENT_ID} names an event that this stream has not sent yet.",
    Reason.NOT_EVENTS: f"{LAST_EVENT_ID} continues streams of events, and this answer is not one.",
    Reason.TOO_MANY_READERS: f"Too many requests with this {KEY} read the answer at once.",
}


def _error_of(reason: Reason) -> ProxyError:
    message = REFUSALS[reason]
    match reason:
        case Reason.OTHER_BODY | Reason.TOO_LARGE | Reason.PRIVATE:
            return Conflict(message, code=ErrorCode.IDEMPOTENCY_CONFLICT, param=KEY)
        case Reason.NOT_KEPT:
            return RequestError(message, code=ErrorCode.STREAM_NOT_KEPT, param=LAST_EVENT_ID)
        case Reason.UNKNOWN_EVENT | Reason.NOT_EVENTS:
            return InvalidRequest(message, param=LAST_EVENT_ID)
        case Reason.TOO_MANY_READERS:
            return RateLimited(message, code=ErrorCode.CONCURRENCY_LIMIT_EXCEEDED)
