"""The routes of OpenAI's API under /v1, the rendering of a prompt, and Dynamo's list of models."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Body, Path, Request
from pydantic import Field
from starlette.responses import JSONResponse, Response, StreamingResponse

from proxy.api.http.answer import Answers
from proxy.api.http.authentication import caller_name
from proxy.api.http.body_reader import BodyReader
from proxy.api.http.client_disconnect import CancelOnDisconnect
from proxy.api.http.own_headers import TAKES_HEADER, headers_of
from proxy.api.http.stream_format import SSE
from proxy.api.http.typed_route import typed_router
from proxy.api.openai.answer_bodies import (
    ChatCompletion,
    ChatCompletionChunk,
    ModelBody,
    ModelList,
    RenderedPrompt,
    TextCompletion,
    TextCompletionChunk,
)
from proxy.api.openai.chat_body import ChatCompletionBody
from proxy.api.openai.completion_body import CompletionBody
from proxy.api.openai.embedding_body import EmbeddingList, EmbeddingsBody
from proxy.api.openai.generation_body import FIELD_NAMES
from proxy.api.openai.request_builder import RequestBuilder
from proxy.api.openai.score_body import RerankAnswer, RerankBody, ScoreAnswer, ScoreBody
from proxy.api.openapi.responses import (
    BODY,
    EVENTS,
    GENERATION,
    JSON,
    Answer,
    answers,
    events,
    requests,
    stream,
)
from proxy.domain.engine import EngineRequest
from proxy.domain.errors import InvalidRequest
from proxy.domain.model import ModelCard, Pooling
from proxy.domain.record import running_record
from proxy.domain.request_limits import smaller
from proxy.domain.tokenizer import AdmittedPrompt, Tokenizer
from proxy.generation.service import Service
from proxy.language.structured.constraint_errors import map_constraint_error
from proxy.language.syntax.parsers import public_name, syntax_of
from proxy.models.registry import Registry

_NAMES = {**FIELD_NAMES, "constraint": "guided_decoding"}
# Not parameters of the API.
_INTERNAL = {
    "limits",
    "deadline",
    "plain_spans",
    "queue_time",
    "engine_times",
    "prompt_token_ids",
    *("embeddings", "scores"),  # see _pooled; of adopted models the engine alone knows
}
CHAT = answers(
    ChatCompletion,
    *GENERATION,
    generates=True,
    content={EVENTS: events(ChatCompletionChunk, stream("chat"))},
)
COMPLETION = answers(
    TextCompletion,
    *GENERATION,
    generates=True,
    content={EVENTS: events(TextCompletionChunk, stream("completion"))},
)
RERANK = answers(RerankAnswer, *BODY, 504, generates=True)
SCORE = answers(ScoreAnswer, *BODY, 504, generates=True)
ChatRequest = Annotated[ChatCompletionBody, Body(openapi_examples=requests("chat"))]
EmbeddingsRequest = Annotated[EmbeddingsBody, Body(openapi_examples=requests("embeddings"))]
CompletionRequest = Annotated[CompletionBody, Body(openapi_examples=requests("completion"))]
RerankRequest = Annotated[RerankBody, Body(openapi_examples=requests("rerank"))]
ScoreRequest = Annotated[ScoreBody, Body(openapi_examples=requests("score"))]
NAME = "A model's public name, or an alias, as `/v1/models` lists it."


class ModelNames(Answer):
    """Names of models, grouped by what the models can do."""

    chat_completion_models: list[str] = Field(examples=[["demo"]])
    completion_models: list[str] = Field(examples=[["demo"]])


def routes(
    answerer: Answers,
    models: Registry,
    builder: RequestBuilder,
    service: Service,
    tokenizer: Tokenizer,
    *,
    bodies: BodyReader,
) -> APIRouter:
    router = typed_router(bodies)

    async def pooled(http: Request, body: EmbeddingsBody | RerankBody | ScoreBody) -> Response:
        served = models.serving(body.model)
        request = body.to_domain(served, caller_name(http.scope))
        running_record().field_names = body.names
        async with CancelOnDisconnect(http.receive):
            found = await service.embed(request, served.card)
            headers = headers_of(running_record(), asyncio.get_running_loop().time())
            pieces = body.written(found, served.name)
            return StreamingResponse(pieces, headers=headers, media_type=JSON)
        return Response()  # nobody is there to read it

    @router.post("/v1/chat/completions", tags=["chat"], responses=CHAT, openapi_extra=TAKES_HEADER)
    async def create_chat_completion(http: Request, body: ChatRequest) -> Response:
        """The model's answer to a chat, in one piece or, with `stream`, as a stream of events."""
        running_record().is_private = body.store is False
        exchange = await builder.chat(body, caller_name(http.scope))
        return answerer.answer(exchange, SSE if body.stream else None)

    @router.post(
        "/v1/completions", tags=["completions"], responses=COMPLETION, openapi_extra=TAKES_HEADER
    )
    async def create_completion(http: Request, body: CompletionRequest) -> Response:
        """The text that follows a prompt, in one piece or, with `stream`, as a stream of events."""
        running_record().is_private = body.store is False
        exchange = await builder.completion(body, caller_name(http.scope))
        return answerer.answer(exchange, SSE if body.stream else None)

    @router.post(
        "/v1/embeddings",
        tags=["embeddings"],
        responses=answers(EmbeddingList, *BODY, 504, generates=True),
    )
    async def create_embeddings(http: Request, body: EmbeddingsRequest) -> Response:
        """A vector for each text or list of token ids."""
        return await pooled(http, body)

    @router.post("/rerank", name="rerank_plain", tags=["embeddings"], responses=RERANK)
    @router.post("/v2/rerank", name="rerank_v2", tags=["embeddings"], responses=RERANK)
    @router.post("/v1/rerank", tags=["embeddings"], responses=RERANK)
    async def rerank(http: Request, body: RerankRequest) -> Response:
        """Documents in the order of their relevance to a query, as Jina, Cohere and vLLM do it."""
        return await pooled(http, body)

    @router.post("/score", name="score_plain", tags=["embeddings"], responses=SCORE)
    @router.post("/v1/score", tags=["embeddings"], responses=SCORE)
    async def score(http: Request, body: ScoreRequest) -> Response:
        """A score of each pair of texts, as vLLM does it."""
        return await pooled(http, body)

    @router.get("/v1/models", tags=["models"], responses=answers(ModelList, 503))
    async def list_models() -> Response:
        """All models that the caller may use, by each of their names."""
        found = [_model_body(card, name) for name, card in models.listed().items()]
        return JSONResponse({"object": "list", "data": found})

    @router.get("/v1/models/{model:path}", tags=["models"], responses=answers(ModelBody, 503))
    async def retrieve_model(
        model: Annotated[str, Path(min_length=1, description=NAME)],
    ) -> Response:
        """One model, found by its name or an alias."""
        return JSONResponse(_model_body(models.asked(model, hides=True), model))

    @router.post(
        "/v1/chat/completions/render",
        tags=["chat"],
        responses=answers(RenderedPrompt, *BODY, 422),
    )
    async def render_chat_completion(http: Request, body: ChatRequest) -> Response:
        """The prompt's text and tokens, and what limits the answer's length, without generating.

        It refuses every request that a generation would refuse.
        """
        exchange = await builder.chat(body, caller_name(http.scope))
        generation, record = exchange.request, running_record()
        try:
            request, *_ = await service.engine_requests(generation, exchange.card)
            admitted = await tokenizer.admit(request)
        except InvalidRequest as error:
            map_constraint_error(error, generation.constraint)
            raise
        is_clamped = request.max_tokens != generation.max_tokens
        limit = "max_output_tokens" if is_clamped else record.field_names()["max_tokens"]
        record.id, record.model = generation.id, request.model.name
        record.prompt_tokens = len(admitted.ids)
        return JSONResponse(
            {
                "id": generation.id,
                "object": "chat.completion.render",
                "model": generation.model,
                **_rendered(request, admitted, limit),
            }
        )

    @router.get(
        "/dynamo/alpha/list-models",
        name="list_models",
        tags=["dynamo"],
        responses=answers(ModelNames),
    )
    async def list_for_dynamo() -> Response:
        """Names of models, grouped by what the models can do, as Dynamo's frontend lists them."""
        cards = models.listed()
        can_chat = [name for name, card in cards.items() if card.facts.chat_template is not None]
        generating = [name for name, card in cards.items() if card.facts.pooling is None]
        return JSONResponse({"chat_completion_models": can_chat, "completion_models": generating})

    return router


def _model_body(card: ModelCard, name: str) -> dict[str, Any]:
    """`name`: the card's, or an alias."""
    syntax, lifecycle = syntax_of(card), card.lifecycle
    context = card.facts.context_length if card.facts.says_context else None
    first, pooling = lifecycle.first_day, card.facts.pooling
    return {
        "id": name,
        "object": "model",
        "created": card.facts.created,
        "owned_by": card.owned_by,
        "root": card.parent or card.name,
        "parent": card.parent,
        "context_length": context,
        "max_model_len": context,  # the name in vLLM, SGLang and trtllm-serve
        "max_output_tokens": None if pooling else smaller(context, card.limits.max_tokens),
        "default_max_tokens": smaller(card.facts.default_max_tokens, card.limits.max_tokens),
        "limits": asdict(card.limits),
        "pooling": pooling and _pooling_body(pooling),
        "tool_parser": public_name(syntax.tools),
        "reasoning_parser": public_name(syntax.reasoning),
        "response_template": syntax.refused,
        "capabilities": sorted(_NAMES.get(name, name) for name in card.capabilities - _INTERNAL),
        **({} if first is None else {"deprecation_date": first.isoformat()}),
        "sunset": None if lifecycle.sunset is None else lifecycle.sunset.isoformat(),
    }


def _pooling_body(pooling: Pooling) -> dict[str, Any]:
    if pooling.is_cross_encoder:
        return {"routes": ["/v1/rerank", "/v1/score"], "dimensions": None}
    dimensions = sorted({*pooling.dimensions, pooling.width}, reverse=True)
    return {"routes": ["/v1/embeddings", "/v1/rerank", "/v1/score"], "dimensions": dimensions}


def _rendered(request: EngineRequest, admitted: AdmittedPrompt, limit: str) -> dict[str, Any]:
    """`limit`: what `max_tokens` comes from, by the caller's name for it."""
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
