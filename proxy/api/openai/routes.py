"""The routes under /v1: body -> domain -> service -> answer."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from triton_openai.proxy.api.answers import sse
from triton_openai.proxy.api.answers.answer import Answers
from triton_openai.proxy.api.answers.exchange import Exchange
from triton_openai.proxy.api.bodies.body import BodyReader
from triton_openai.proxy.api.bodies.caller import caller_of
from triton_openai.proxy.api.openai.asking import Asking
from triton_openai.proxy.api.openai.documentation import documented
from triton_openai.proxy.api.openai.models import model_body, model_list
from triton_openai.proxy.api.openai.requests.bodies import ChatCompletionBody, CompletionBody
from triton_openai.proxy.models.registry import Registry


def routes(
    answers: Answers, registry: Registry, asking: Asking, *, bodies: BodyReader
) -> APIRouter:
    router = APIRouter(prefix="/v1")

    def answer(exchange: Exchange, *, streams: bool) -> Response:
        return answers.streamed(exchange, sse.OPENAI) if streams else answers.whole(exchange)

    @router.post("/chat/completions", openapi_extra=documented.CHAT.extra)
    async def create_chat_completion(http: Request) -> Response:
        """The model's answer to a chat: whole, or as a stream of events with `stream`."""
        body = await bodies.read(http, ChatCompletionBody)
        exchange = await asking.chat(body, caller_of(http.scope))
        return answer(exchange, streams=bool(body.stream))

    @router.post("/completions", openapi_extra=documented.COMPLETION.extra)
    async def create_completion(http: Request) -> Response:
        """The text that follows a prompt: whole, or as a stream of events with `stream`."""
        body = await bodies.read(http, CompletionBody)
        exchange = await asking.completion(body, caller_of(http.scope))
        return answer(exchange, streams=bool(body.stream))

    @router.get("/models", openapi_extra=documented.MODELS.extra)
    async def list_models() -> Response:
        """All models and aliases that can be asked."""
        return JSONResponse(model_list(registry.cards()))

    @router.get("/models/{model:path}", openapi_extra=documented.MODEL.extra)
    async def retrieve_model(model: str) -> Response:
        """One model, by its name or an alias."""
        return JSONResponse(model_body(registry.known(model), model))

    return router
