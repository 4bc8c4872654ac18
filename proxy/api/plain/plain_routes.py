"""The routes under /chat: one request, three forms of its answer."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from triton_openai.proxy.api.answers.answer import Answers
from triton_openai.proxy.api.answers.exchange import Exchange
from triton_openai.proxy.api.answers.stream_format import JSON_LINES, SSE_NAMED_ERRORS
from triton_openai.proxy.api.bodies.body_reader import BodyReader
from triton_openai.proxy.api.bodies.caller_name import caller_name
from triton_openai.proxy.api.bodies.queue_patience import with_patience
from triton_openai.proxy.api.openai.requests.field_limits import FieldLimits
from triton_openai.proxy.api.plain import plain_chat, plain_operations
from triton_openai.proxy.api.plain.plain_chat import PlainChatBody, PlainRenderer
from triton_openai.proxy.models.callers_models import CallersModels


def routes(
    answers: Answers, models: CallersModels, limits: FieldLimits, *, bodies: BodyReader
) -> APIRouter:
    router = APIRouter(prefix="/chat")

    async def exchange(http: Request, *, sends_done: bool = True) -> Exchange:
        body = await bodies.read(http, PlainChatBody)
        limits.check_chat(body.messages, None)
        served = models.serving(body.model)
        request = with_patience(plain_chat.to_domain(body, served, caller_name(http.scope)))
        return Exchange(request, served.card, PlainRenderer(request, sends_done=sends_done))

    @router.post("/json", openapi_extra=plain_operations.WHOLE.extra)
    async def chat_json(http: Request) -> Response:
        """The whole answer as one JSON body."""
        return answers.whole(await exchange(http))

    @router.post("/stream", openapi_extra=plain_operations.LINES.extra)
    async def chat_stream(http: Request) -> Response:
        """Newline-delimited JSON; the last line has `"done": true`."""
        return answers.streamed(await exchange(http), JSON_LINES)

    @router.post("/sse", openapi_extra=plain_operations.EVENT_STREAM.extra)
    async def chat_sse(http: Request) -> Response:
        """Server-sent events, then `[DONE]`."""
        return answers.streamed(await exchange(http, sends_done=False), SSE_NAMED_ERRORS)

    return router
