"""The routes under /v1: body -> GenerationRequest -> service -> answer; and the list of models."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from datetime import date
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request
from starlette.responses import JSONResponse, Response

from proxy.api.answers.answer import Answers
from proxy.api.answers.exchange import Exchange
from proxy.api.answers.stream_format import SSE
from proxy.api.bodies.body_reader import BodyReader
from proxy.api.bodies.caller_name import caller_name
from proxy.api.bodies.queue_patience import TAKES_HEADER
from proxy.api.openai.documentation import examples
from proxy.api.openai.documentation.answer_bodies import (
    ChatCompletion,
    ChatCompletionChunk,
    ModelBody,
    ModelList,
    TextCompletion,
    TextCompletionChunk,
)
from proxy.api.openai.documentation.examples import ChatRequest, CompletionRequest
from proxy.api.openai.request_builder import RequestBuilder
from proxy.api.openai.requests.field_names import FIELD_NAMES
from proxy.api.openai.requests.generation_body import GenerationBody
from proxy.api.openapi.responses import (
    EVENTS,
    GENERATION,
    GENERATION_HEADERS,
    answers,
    events,
)
from proxy.api.typed_route import typed_router
from proxy.domain.model import ModelCard
from proxy.domain.record import running_record
from proxy.domain.request_limits import smaller
from proxy.language.syntax import parsers
from proxy.models.callers_models import CallersModels

_NAMES = {**FIELD_NAMES, "constraint": "guided_decoding"}
# Not parameters of the API.
_INTERNAL = {"limits", "deadline", "plain_spans", "queue_time", "engine_times"}
HEADERS = ("x-attempts", "x-unenforced-keywords", "x-priority-capped", *GENERATION_HEADERS)
CHAT = answers(
    ChatCompletion,
    *GENERATION,
    headers=HEADERS,
    content={EVENTS: events(ChatCompletionChunk, examples.CHAT_STREAM)},
)
COMPLETION = answers(
    TextCompletion,
    *GENERATION,
    headers=HEADERS,
    content={EVENTS: events(TextCompletionChunk, examples.COMPLETION_STREAM)},
)
NAME = "A model's public name, or an alias, as `/v1/models` lists it."


def routes(
    answerer: Answers, models: CallersModels, builder: RequestBuilder, *, bodies: BodyReader
) -> APIRouter:
    router = typed_router(bodies, "/v1")

    def answer(exchange: Exchange, body: GenerationBody) -> Response:
        return answerer.streamed(exchange, SSE) if body.stream else answerer.whole(exchange)

    @router.post("/chat/completions", tags=["chat"], responses=CHAT, openapi_extra=TAKES_HEADER)
    async def create_chat_completion(http: Request, body: ChatRequest) -> Response:
        """The model's answer to a chat, in one piece or, with `stream`, as a stream of events."""
        _note_privacy(body)
        return answer(await builder.chat(body, caller_name(http.scope)), body)

    @router.post(
        "/completions", tags=["completions"], responses=COMPLETION, openapi_extra=TAKES_HEADER
    )
    async def create_completion(http: Request, body: CompletionRequest) -> Response:
        """The text that follows a prompt, in one piece or, with `stream`, as a stream of events."""
        _note_privacy(body)
        return answer(await builder.completion(body, caller_name(http.scope)), body)

    @router.get("/models", tags=["models"], responses=answers(ModelList, 503))
    async def list_models() -> Response:
        """All models that the caller may use."""
        return JSONResponse(_model_list(models.listed()))

    @router.get("/models/{model:path}", tags=["models"], responses=answers(ModelBody, 503))
    async def retrieve_model(
        model: Annotated[str, Path(min_length=1, description=NAME)],
    ) -> Response:
        """One model, found by its name or an alias."""
        return JSONResponse(_model_body(models.shown(model), model))

    return router


def _note_privacy(body: GenerationBody) -> None:
    if body.store is False:
        running_record().is_private = True


def _model_list(cards: Iterable[ModelCard]) -> dict[str, Any]:
    return {"object": "list", "data": [_model_body(card, card.name) for card in cards]}


def _model_body(card: ModelCard, name: str) -> dict[str, Any]:
    """`name`: the name in the request, which may be an alias."""
    families = parsers.families_of(card)
    return {
        "id": name,
        "object": "model",
        "created": card.facts.created,
        "owned_by": card.owned_by,
        "root": card.parent or card.name,
        "parent": card.parent,
        "context_length": card.facts.context_length,
        "max_model_len": card.facts.context_length,  # the name in vLLM, SGLang and trtllm-serve
        "max_output_tokens": smaller(card.facts.context_length, card.limits.max_tokens),
        "default_max_tokens": smaller(card.facts.default_max_tokens, card.limits.max_tokens),
        "limits": asdict(card.limits),
        "tool_parser": families.tools,
        "reasoning_parser": families.reasoning,
        "capabilities": sorted(_NAMES.get(name, name) for name in card.capabilities - _INTERNAL),
        "deprecated": _day(card.lifecycle.deprecated),
        "sunset": _day(card.lifecycle.sunset),
    }


def _day(day: date | None) -> str | None:
    return None if day is None else day.isoformat()
