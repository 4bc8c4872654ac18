"""The routes under /chat: one request, three forms of its answer."""

from __future__ import annotations

from dataclasses import replace

from fastapi import APIRouter, Request
from starlette.responses import Response

from triton_openai.proxy.api.answers.answer import Answers
from triton_openai.proxy.api.answers.stream_format import JSON_LINES, SSE_NAMED_ERRORS
from triton_openai.proxy.api.bodies.body_reader import BodyReader
from triton_openai.proxy.api.bodies.caller_address import caller_address
from triton_openai.proxy.api.openai.requests.field_limits import FieldLimits
from triton_openai.proxy.api.plain import plain_chat, plain_operations
from triton_openai.proxy.api.plain.plain_chat import PlainChatBody, PlainRenderer
from triton_openai.proxy.domain.request import GenerationRequest
from triton_openai.proxy.models.registry import Registry


def routes(
    answers: Answers, registry: Registry, limits: FieldLimits, *, bodies: BodyReader
) -> APIRouter:
    router = APIRouter(prefix="/chat")

    async def request_of(http: Request) -> GenerationRequest:
        body = await bodies.read(http, PlainChatBody)
        limits.check_chat(body.messages, None)
        request = plain_chat.to_domain(body, registry.default().name)
        return replace(request, caller=caller_address(http.scope))

    @router.post("/json", openapi_extra=plain_operations.WHOLE.extra)
    async def chat_json(http: Request) -> Response:
        """The whole answer as one JSON body."""
        request = await request_of(http)
        return answers.whole(request, PlainRenderer(request))

    @router.post("/stream", openapi_extra=plain_operations.LINES.extra)
    async def chat_stream(http: Request) -> Response:
        """Newline-delimited JSON; the last line has `"done": true`."""
        request = await request_of(http)
        return answers.streamed(request, PlainRenderer(request), JSON_LINES)

    @router.post("/sse", openapi_extra=plain_operations.EVENT_STREAM.extra)
    async def chat_sse(http: Request) -> Response:
        """Server-sent events, then `[DONE]`."""
        request = await request_of(http)
        renderer = PlainRenderer(request, sends_done=False)
        return answers.streamed(request, renderer, SSE_NAMED_ERRORS)

    return router
