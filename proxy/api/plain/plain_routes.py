"""The routes under /chat: one request, three forms of its answer."""

from __future__ import annotations

import json
from typing import Annotated

from fastapi import APIRouter, Body, Request
from pydantic import BaseModel
from starlette.responses import Response

from proxy.api.http.answer import Answers, Exchange
from proxy.api.http.authentication import caller_name
from proxy.api.http.body_reader import BodyReader
from proxy.api.http.own_headers import TAKES_HEADER, with_patience
from proxy.api.http.typed_route import typed_router
from proxy.api.openapi.responses import (
    EVENTS,
    GENERATION,
    JSON,
    Json,
    Responses,
    answers,
    events,
    reference,
    requests,
    stream,
)
from proxy.api.plain import plain_chat
from proxy.api.plain.manifest import JSON_LINES, SSE_NAMED_ERRORS
from proxy.api.plain.plain_chat import (
    PlainAnswer,
    PlainChatBody,
    PlainChunk,
    PlainRenderer,
)
from proxy.domain.record import running_record
from proxy.models.registry import Registry

ChatRequest = Annotated[PlainChatBody, Body(openapi_examples=requests("plain"))]
CHUNKS = stream("plain")
LINES = {
    "x-line-schema": reference(PlainChunk),  # OpenAPI 3.1 cannot describe lines of JSON
    "example": "".join(f"{json.dumps(chunk)}\n" for chunk in CHUNKS),
}
SERVER_SENT = events(PlainChunk, CHUNKS[:-1])  # it ends with `[DONE]`


def _answers(model: type[BaseModel] | None, content: Json | None = None) -> Responses:
    return answers(model, *GENERATION, generates=True, content=content)


def routes(answerer: Answers, models: Registry, *, bodies: BodyReader) -> APIRouter:
    router = typed_router(bodies, "/chat", tag="plain")

    def exchange(http: Request, body: PlainChatBody, *, sends_done: bool = True) -> Exchange:
        served = models.serving(body.model)
        running_record().field_names = lambda: {"prompt": "messages"}
        request = with_patience(plain_chat.to_domain(body, served, caller_name(http.scope)))
        return Exchange(request, served.card, PlainRenderer(request, sends_done=sends_done))

    @router.post("/json", responses=_answers(PlainAnswer), openapi_extra=TAKES_HEADER)
    async def chat_json(http: Request, body: ChatRequest) -> Response:
        """The whole answer as one JSON body."""
        return answerer.answer(exchange(http, body))

    @router.post(
        "/stream",
        response_class=Response,
        responses=_answers(None, {JSON: LINES}),
        openapi_extra=TAKES_HEADER,
    )
    async def chat_stream(http: Request, body: ChatRequest) -> Response:
        """Newline-delimited JSON; the last line has `"done": true`."""
        return answerer.answer(exchange(http, body), JSON_LINES)

    @router.post(
        "/sse",
        response_class=Response,
        responses=_answers(None, {EVENTS: SERVER_SENT}),
        openapi_extra=TAKES_HEADER,
    )
    async def chat_sse(http: Request, body: ChatRequest) -> Response:
        """Server-sent events, then `[DONE]`."""
        return answerer.answer(exchange(http, body, sends_done=False), SSE_NAMED_ERRORS)

    return router
