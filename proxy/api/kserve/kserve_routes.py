"""/v2: health, metadata and inference of any Triton model that the caller's key allows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from fastapi import APIRouter, Request
from fastapi.routing import APIRoute
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Send
from starlette.types import Scope as Connection

from proxy.access.concurrency import SharedConcurrency
from proxy.api import errors
from proxy.api.http import json_shape
from proxy.api.http.authentication import caller_name
from proxy.api.http.body_reader import BodyReader
from proxy.api.http.client_disconnect import CancelOnDisconnect
from proxy.api.kserve import infer_codec
from proxy.api.kserve.infer_codec import ParsedInfer
from proxy.domain.errors import (
    ErrorCode,
    InvalidRequest,
    ProxyError,
    RequestError,
    echoed,
    model_not_allowed,
)
from proxy.domain.identity import Scope, current_caller
from proxy.domain.kserve import KserveBackend, KserveResponse
from proxy.domain.sandbox import Sandbox, TooCostly

HEAD_LENGTH = "inference-header-content-length"
OCTETS = "application/octet-stream"
CHEAP_BYTES = 16_000  # of elements that JSON shall have, or of BYTES to check: under 5 ms
MOST_REQUESTS = 256  # at once; each holds one body, and one answer of Triton
Internal = Callable[[], frozenset[str]]


class KserveRoute(APIRoute):
    """Answers the errors that an endpoint raises. What the authentication refuses before it has
    the body of OpenAI's errors, as everywhere.
    """

    async def handle(self, scope: Connection, receive: Receive, send: Send) -> None:
        try:
            await super().handle(scope, receive, send)
        except ProxyError as error:
            message = errors.body_of(error)["error"]["message"]
            headers = errors.headers_of(error)
            response = JSONResponse({"error": message}, error.code.status, headers=headers)
            await response(scope, receive, send)


def routes(
    backend: KserveBackend,
    internal: Internal,
    *,
    bodies: BodyReader,
    sandbox: Sandbox,
    timeout_s: float,
    most_requests: int = MOST_REQUESTS,
) -> APIRouter:
    """internal: names of models that only callers with the scope `admin` may use, too.

    timeout_s: of one inference.
    """
    router = APIRouter(prefix="/v2", route_class=KserveRoute, include_in_schema=False)
    inference = Inference(backend, bodies, sandbox, timeout_s, most_requests)

    @router.get("")
    async def server_metadata() -> Response:
        return JSONResponse(await backend.server_metadata())

    @router.get("/health/live")
    async def is_live() -> Response:
        return Response()

    @router.get("/health/ready")
    async def is_ready() -> Response:
        return _ready(await backend.is_server_ready())

    @router.get("/models/{model}")
    @router.get("/models/{model}/versions/{version}")
    async def model_metadata(model: str, version: str = "") -> Response:
        _check(model, internal)
        return JSONResponse(await backend.model_metadata(model, _version(version)))

    @router.get("/models/{model}/ready")
    @router.get("/models/{model}/versions/{version}/ready")
    async def is_model_ready(model: str, version: str = "") -> Response:
        _check(model, internal)
        return _ready(await backend.is_model_ready(model, _version(version)))

    @router.post("/models/{model}/infer")
    @router.post("/models/{model}/versions/{version}/infer")
    async def infer(model: str, http: Request, version: str = "") -> Response:
        _check(model, internal)
        return await inference.answer(http, model, _version(version))

    return router


class Inference:
    """Reads a request, has Triton answer it, and writes the answer.

    When a client disconnects, its inference at Triton is not cancelled: a cancellation that arrives
    just as a request ends crashes tritonserver (its issues 7368 and 8034; 30,000 of them crashed
    2.51 within 17 s). So the inference keeps its permit until Triton has answered, and a tenant has
    only a part of the permits.
    """

    def __init__(
        self,
        backend: KserveBackend,
        bodies: BodyReader,
        sandbox: Sandbox,
        timeout_s: float,
        most_requests: int,
    ) -> None:
        self._backend = backend
        self._bodies = bodies
        self._sandbox = sandbox
        self._timeout_s = timeout_s
        self._permits = SharedConcurrency(most_requests, what="KServe inferences")
        self._at_triton: set[asyncio.Task[KserveResponse]] = set()

    async def answer(self, http: Request, model: str, version: str) -> Response:
        caller = caller_name(http.scope)
        with ExitStack() as permit:
            permit.enter_context(self._permits.permits(caller))
            async with self._bodies.received(http) as data:
                head, tail = _parts(data, http.headers.get(HEAD_LENGTH))
                parsed = await self._parsed(head, tail, caller)
            inference = asyncio.create_task(
                self._backend.infer(model, version, parsed.request, timeout_s=self._timeout_s)
            )
            held = permit.pop_all()
        self._at_triton.add(inference)
        inference.add_done_callback(lambda ended: self._ended(ended, held))
        async with CancelOnDisconnect(http.receive):
            found = await asyncio.shield(inference)
            return await self._written(found, parsed, caller)
        return Response()  # nobody is there to read it

    def _ended(self, inference: asyncio.Task[KserveResponse], held: ExitStack) -> None:
        held.close()
        self._at_triton.discard(inference)
        if not inference.cancelled():
            inference.exception()  # of a client that has disconnected, nobody else looks at it

    async def _parsed(self, head: bytes, tail: bytes, caller: str) -> ParsedInfer:
        has_lengths = b"BYTES" in head and len(tail) > CHEAP_BYTES
        if json_shape.is_cheap(head) and not has_lengths:
            return infer_codec.parse(head, tail)
        parsed: ParsedInfer = await self._apart(caller, infer_codec.parse, head, tail)
        return parsed

    async def _written(self, found: KserveResponse, parsed: ParsedInfer, caller: str) -> Response:
        asked = {each.name for each in parsed.request.outputs}
        binary = frozenset(
            each.name
            for each in found.outputs
            if each.name in parsed.binary or (parsed.is_all_binary and each.name not in asked)
        )
        in_json = sum(len(each.data) for each in found.outputs if each.name not in binary)
        if in_json <= CHEAP_BYTES:
            head = infer_codec.head(found, binary)
        else:
            head = await self._apart(caller, infer_codec.head, found, binary)
        if not binary:
            return Response(head, media_type="application/json")
        tails = (each.data for each in found.outputs if each.name in binary)
        headers = {HEAD_LENGTH: str(len(head))}
        return Response(b"".join((head, *tails)), headers=headers, media_type=OCTETS)

    async def _apart(self, caller: str, function: Callable[..., Any], *args: Any) -> Any:
        """In a child process. Raises InvalidRequest: it is too costly."""
        try:
            return await self._sandbox.run(caller, function, *args)
        except TooCostly as error:
            raise InvalidRequest(
                f"These tensors are too large for JSON ({error}): send and ask for binary data.",
                code=ErrorCode.INVALID_JSON,
                param=None,
            ) from error


def _parts(data: bytes, length: str | None) -> tuple[bytes, bytes]:
    """The JSON, and the binary data behind it. Raises InvalidRequest."""
    if length is None:
        return data, b""
    is_number = length.isascii() and length.isdigit() and len(length) < 20
    if not is_number or not 0 < int(length) <= len(data):
        raise InvalidRequest(
            f"Inference-Header-Content-Length is {echoed(length)}: it must be the length of the "
            f"JSON, from 1 to the {len(data)} bytes of the body.",
            param="Inference-Header-Content-Length",
        )
    return data[: int(length)], data[int(length) :]


def _version(text: str) -> str:
    if text and not (text.isascii() and text.isdigit() and len(text) < 20):
        raise InvalidRequest(
            f"{echoed(text)} is not a version of a model: versions are numbers.", param="version"
        )
    return text


def _ready(is_ready: bool) -> Response:
    return Response(status_code=200 if is_ready else 503)


def _check(model: str, internal: Internal) -> None:
    """Raises RequestError; ModelUnavailable as `internal`."""
    caller = current_caller.get()
    if not caller.models.allows(model):
        raise model_not_allowed(model)
    if model in internal() and not caller.may(Scope.ADMIN):
        raise RequestError(
            f"The model {echoed(model)} serves OpenAI's API, with its limits and its protection of "
            "control tokens. Use /v1/chat/completions; only the scope admin may call it here.",
            code=ErrorCode.MODEL_NOT_ALLOWED,
            param="model",
        )
