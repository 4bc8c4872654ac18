"""The routes under /v1: body -> domain -> service -> answer."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from proxy.api import body
from proxy.api.answer import Renderer, StreamedAnswer, WholeAnswer
from proxy.api.openai import chat, completions
from proxy.api.openai.bodies import ChatCompletionBody, CompletionBody
from proxy.api.openai.head import fingerprint_of
from proxy.api.openai.limits import Limits
from proxy.api.openai.models import model_body, model_list
from proxy.domain.request import GenerationRequest
from proxy.registry import Registry
from proxy.service import Service


def routes(
    service: Service, registry: Registry, *, max_request_bytes: int, limits: Limits
) -> APIRouter:
    router = APIRouter(prefix="/v1")

    def answer(request: GenerationRequest, renderer: Renderer, *, streams: bool) -> Response:
        kind = StreamedAnswer if streams else WholeAnswer
        return kind(service.generate(request), renderer)

    @router.post("/chat/completions", openapi_extra=_takes(ChatCompletionBody))
    async def create_chat_completion(http: Request) -> Response:
        asked = await body.read(http, ChatCompletionBody, max_bytes=max_request_bytes)
        limits.check(asked)
        request = chat.to_domain(asked)
        fingerprint = fingerprint_of(registry.known(asked.model))
        renderer = chat.ChatRenderer(asked, request, fingerprint=fingerprint)
        return answer(request, renderer, streams=bool(asked.stream))

    @router.post("/completions", openapi_extra=_takes(CompletionBody))
    async def create_completion(http: Request) -> Response:
        asked = await body.read(http, CompletionBody, max_bytes=max_request_bytes)
        limits.check(asked)
        request = completions.to_domain(asked)
        fingerprint = fingerprint_of(registry.known(asked.model))
        renderer = completions.CompletionRenderer(asked, request, fingerprint=fingerprint)
        return answer(request, renderer, streams=bool(asked.stream))

    @router.get("/models")
    async def list_models() -> Response:
        return JSONResponse(model_list(registry.cards()))

    @router.get("/models/{model:path}")
    async def retrieve_model(model: str) -> Response:
        return JSONResponse(model_body(registry.known(model), model))

    return router


def _takes(kind: type[ChatCompletionBody | CompletionBody]) -> dict[str, Any]:
    """The body in the OpenAPI document; FastAPI does not see it, since `body.read` parses it."""
    schema = kind.model_json_schema()
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}
