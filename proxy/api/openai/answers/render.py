"""POST /v1/chat/completions/render: what a chat request would give the engine, not generated."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from triton_openai.proxy.api.bodies.body import BodyReader
from triton_openai.proxy.api.bodies.caller import caller_of
from triton_openai.proxy.api.errors import ProtocolNames
from triton_openai.proxy.api.openai.asking import Asking
from triton_openai.proxy.api.openai.documentation import documented
from triton_openai.proxy.api.openai.requests.bodies import ChatCompletionBody
from triton_openai.proxy.domain.engine import EngineRequest
from triton_openai.proxy.domain.tokenizer import AdmittedPrompt, Tokenizer
from triton_openai.proxy.generation.service import Service
from triton_openai.proxy.structured.blame import Blame
from triton_openai.proxy.telemetry import line


def routes(
    service: Service, tokenizer: Tokenizer, asking: Asking, *, bodies: BodyReader
) -> APIRouter:
    router = APIRouter(prefix="/v1")

    @router.post("/chat/completions/render", openapi_extra=documented.RENDER.extra)
    async def render_chat_completion(http: Request) -> Response:
        """The prompt's text and tokens, and what limits the answer. Refuses what a generation
        would refuse.
        """
        body = await bodies.read(http, ChatCompletionBody)
        exchange = await asking.chat(body, caller_of(http.scope))
        generation, names = exchange.request, exchange.renderer.field_names
        with ProtocolNames(names), Blame(generation.constraint):
            request, *_ = await service.engine_requests(generation, exchange.card)
            admitted = await tokenizer.admit(request)
        line.add(id=generation.id, model=request.model.name, prompt_tokens=len(admitted.ids))
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
    """The limits that end the answer at `max_tokens`: the caller's, the default, the context's."""
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
