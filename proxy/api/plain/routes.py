"""The routes under /chat: one request, three forms of its answer."""

from __future__ import annotations

from dataclasses import replace

from fastapi import APIRouter, Request
from starlette.responses import Response

from triton_openai.proxy.api.answers import ndjson, sse
from triton_openai.proxy.api.answers.answer import Answers
from triton_openai.proxy.api.bodies.body import BodyReader
from triton_openai.proxy.api.bodies.caller import caller_of
from triton_openai.proxy.api.openai.requests.limits import Limits
from triton_openai.proxy.api.plain import chat, documented
from triton_openai.proxy.api.plain.chat import PlainChatBody, PlainRenderer
from triton_openai.proxy.domain.request import GenerationRequest
from triton_openai.proxy.models.registry import Registry


def routes(answers: Answers, registry: Registry, sizes: Limits, *, bodies: BodyReader) -> APIRouter:
    router = APIRouter(prefix="/chat")

    async def asked(http: Request) -> GenerationRequest:
        given = await bodies.read(http, PlainChatBody)
        sizes.check_chat(given.messages, None)
        request = chat.to_domain(given, registry.default().name)
        return replace(request, caller=caller_of(http.scope))

    @router.post("/json", openapi_extra=documented.WHOLE.extra)
    async def chat_json(http: Request) -> Response:
        """The whole answer as one JSON body."""
        request = await asked(http)
        return answers.whole(request, PlainRenderer(request))

    @router.post("/stream", openapi_extra=documented.LINES.extra)
    async def chat_stream(http: Request) -> Response:
        """Newline-delimited JSON; the last line has `"done": true`."""
        request = await asked(http)
        return answers.streamed(request, PlainRenderer(request), ndjson.LINES)

    @router.post("/sse", openapi_extra=documented.EVENT_STREAM.extra)
    async def chat_sse(http: Request) -> Response:
        """Server-sent events, then `[DONE]`."""
        request = await asked(http)
        renderer = PlainRenderer(request, says_done=False)
        return answers.streamed(request, renderer, sse.NAMED_ERRORS)

    return router
