"""The routes under /v1: body -> domain -> service -> answer."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from triton_openai.proxy.api.answers import sse
from triton_openai.proxy.api.answers.answer import Answers, Renderer
from triton_openai.proxy.api.bodies.body import BodyReader
from triton_openai.proxy.api.bodies.caller import caller_of
from triton_openai.proxy.api.openai.asking import Asking
from triton_openai.proxy.api.openai.documentation import documented
from triton_openai.proxy.api.openai.models import model_body, model_list
from triton_openai.proxy.api.openai.requests.bodies import ChatCompletionBody, CompletionBody
from triton_openai.proxy.domain.request import GenerationRequest
from triton_openai.proxy.models.registry import Registry


def routes(
    answers: Answers, registry: Registry, asking: Asking, *, bodies: BodyReader
) -> APIRouter:
    router = APIRouter(prefix="/v1")

    def answer(request: GenerationRequest, renderer: Renderer, *, streams: bool) -> Response:
        if streams:
            return answers.streamed(request, renderer, sse.OPENAI)
        return answers.whole(request, renderer)

    @router.post("/chat/completions", openapi_extra=documented.CHAT.extra)
    async def create_chat_completion(http: Request) -> Response:
        """The model's answer to a chat: whole, or as a stream of events with `stream`."""
        asked = await bodies.read(http, ChatCompletionBody)
        request, renderer = await asking.chat(asked, caller_of(http.scope))
        return answer(request, renderer, streams=bool(asked.stream))

    @router.post("/completions", openapi_extra=documented.COMPLETION.extra)
    async def create_completion(http: Request) -> Response:
        """The text that follows a prompt: whole, or as a stream of events with `stream`."""
        asked = await bodies.read(http, CompletionBody)
        request, renderer = await asking.completion(asked, caller_of(http.scope))
        return answer(request, renderer, streams=bool(asked.stream))

    @router.get("/models", openapi_extra=documented.MODELS.extra)
    async def list_models() -> Response:
        """All models and aliases that can be asked."""
        return JSONResponse(model_list(registry.cards()))

    @router.get("/models/{model:path}", openapi_extra=documented.MODEL.extra)
    async def retrieve_model(model: str) -> Response:
        """One model, by its name or an alias."""
        return JSONResponse(model_body(registry.known(model), model))

    return router
