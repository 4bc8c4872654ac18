"""POST /v1/chat/completions/render: shows a chat's prompt and limits without generating."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from proxy.api.bodies.body_reader import BodyReader
from proxy.api.bodies.caller_name import caller_name
from proxy.api.errors import ProtocolNames
from proxy.api.openai.documentation.answer_bodies import RenderedPrompt
from proxy.api.openai.documentation.examples import ChatRequest
from proxy.api.openai.request_builder import RequestBuilder
from proxy.api.openapi.responses import BODY, answers
from proxy.api.typed_route import typed_router
from proxy.domain.engine import EngineRequest
from proxy.domain.record import running_record
from proxy.domain.tokenizer import AdmittedPrompt, Tokenizer
from proxy.generation.service import Service
from proxy.language.structured.constraint_errors import MappedConstraintErrors


def routes(
    service: Service, tokenizer: Tokenizer, builder: RequestBuilder, *, bodies: BodyReader
) -> APIRouter:
    router = typed_router(bodies, "/v1", tag="chat")

    @router.post("/chat/completions/render", responses=answers(RenderedPrompt, *BODY, 422))
    async def render_chat_completion(http: Request, body: ChatRequest) -> Response:
        """The prompt's text and tokens, and what limits the answer's length, without generating.

        It refuses every request that a generation would refuse.
        """
        exchange = await builder.chat(body, caller_name(http.scope))
        generation, names = exchange.request, exchange.renderer.field_names
        with ProtocolNames(names), MappedConstraintErrors(generation.constraint):
            request, *_ = await service.engine_requests(generation, exchange.card)
            admitted = await tokenizer.admit(request)
        record = running_record()
        record.id, record.model = generation.id, request.model.name
        record.prompt_tokens = len(admitted.ids)
        return JSONResponse(
            {
                "id": generation.id,
                "object": "chat.completion.render",
                "model": generation.model,
                **_rendered(request, admitted, names["max_tokens"]),
            }
        )

    return router


def _rendered(request: EngineRequest, admitted: AdmittedPrompt, limit: str) -> dict[str, Any]:
    """`limit`: the caller's name for max_tokens."""
    context_length = request.model.facts.context_length
    return {
        "prompt": request.text,
        "prompt_token_ids": admitted.ids,
        "prompt_tokens": len(admitted.ids),
        "context_length": context_length,
        "max_tokens": admitted.max_tokens,
        "limited_by": _binding(request, admitted, context_length - len(admitted.ids), limit),
    }


def _binding(request: EngineRequest, admitted: AdmittedPrompt, room: int, limit: str) -> list[str]:
    """Names of the limits that set the answer's `max_tokens`: the caller's, a default, the context.

    room: tokens that the context has left after the prompt.
    """
    binding = []
    if request.max_tokens is not None:
        binding.append(limit)
    elif admitted.max_tokens == request.token_cap:
        binding.append("max_output_tokens")
    elif admitted.max_tokens < room:
        binding.append("default_max_tokens")
    if admitted.max_tokens == room:
        binding.append("context_length")
    return binding
