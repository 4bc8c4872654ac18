"""The routes under /chat: one request, three forms of its answer."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from triton_openai.proxy.api.answers import ndjson, sse
from triton_openai.proxy.api.answers.answer import Answers
from triton_openai.proxy.api.answers.exchange import Exchange
from triton_openai.proxy.api.bodies.body import BodyReader
from triton_openai.proxy.api.bodies.caller import caller_of
from triton_openai.proxy.api.openai.requests.limits import Limits
from triton_openai.proxy.api.plain import chat, documented
from triton_openai.proxy.api.plain.chat import PlainChatBody, PlainRenderer
from triton_openai.proxy.models.registry import Registry


def routes(answers: Answers, registry: Registry, sizes: Limits, *, bodies: BodyReader) -> APIRouter:
    router = APIRouter(prefix="/chat")

    async def exchange(http: Request, *, says_done: bool = True) -> Exchange:
        body = await bodies.read(http, PlainChatBody)
        sizes.check_chat(body.messages, None)
        card = registry.default() if body.model is None else registry.known(body.model)
        request = chat.to_domain(body, card, caller_of(http.scope))
        return Exchange(request, card, PlainRenderer(request, says_done=says_done))

    @router.post("/json", openapi_extra=documented.WHOLE.extra)
    async def chat_json(http: Request) -> Response:
        """The whole answer as one JSON body."""
        return answers.whole(await exchange(http))

    @router.post("/stream", openapi_extra=documented.LINES.extra)
    async def chat_stream(http: Request) -> Response:
        """Newline-delimited JSON; the last line has `"done": true`."""
        return answers.streamed(await exchange(http), ndjson.LINES)

    @router.post("/sse", openapi_extra=documented.EVENT_STREAM.extra)
    async def chat_sse(http: Request) -> Response:
        """Server-sent events, then `[DONE]`."""
        return answers.streamed(await exchange(http, says_done=False), sse.NAMED_ERRORS)

    return router
