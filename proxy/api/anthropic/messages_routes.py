"""POST /v1/messages and /v1/messages/count_tokens."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Body, Request
from starlette.responses import JSONResponse, Response

from proxy.api.anthropic.answer_bodies import (
    MessageAnswer,
    MessageError,
    MessageEvent,
    TokenCount,
)
from proxy.api.anthropic.manifest import MESSAGE_EVENTS, PATH
from proxy.api.anthropic.message_body import CountTokensBody, MessagesBody
from proxy.api.anthropic.message_renderer import MessageRenderer
from proxy.api.http.answer import Answers, Exchange
from proxy.api.http.authentication import caller_name
from proxy.api.http.body_reader import BodyReader, converted
from proxy.api.http.own_headers import TAKES_HEADER, with_patience
from proxy.api.http.typed_route import typed_router
from proxy.api.openai.request_builder import FieldLimits
from proxy.api.openapi.responses import (
    BODY,
    EVENTS,
    GENERATION,
    answers,
    named_events,
    requests,
    stream,
)
from proxy.domain.record import running_record
from proxy.domain.tokenizer import Tokenizer
from proxy.generation.service import Service
from proxy.language.structured.constraint_request import Examiner
from proxy.models.registry import Registry

MESSAGE = answers(
    MessageAnswer,
    *GENERATION,
    generates=True,
    content={EVENTS: named_events(MessageEvent, MessageError, stream("message"))},
)
MessageRequest = Annotated[MessagesBody, Body(openapi_examples=requests("message"))]
CountRequest = Annotated[CountTokensBody, Body(openapi_examples=requests("count_tokens"))]


def routes(
    answerer: Answers,
    models: Registry,
    limits: FieldLimits,
    examiner: Examiner,
    service: Service,
    tokenizer: Tokenizer,
    *,
    bodies: BodyReader,
) -> APIRouter:
    router = typed_router(bodies, PATH, tag="anthropic")

    async def exchange(http: Request, body: CountTokensBody) -> Exchange:
        tools = await converted(lambda: body.callable_tools)
        await converted(limits.check_chat, body.messages, [tool for _, tool in tools])
        served = models.serving(body.model)
        body.check_choice(served.card)
        request = await converted(body.to_domain, served, caller_name(http.scope))
        limits.check_stops("stop_sequences", request.stop)
        display = None if body.thinking is None else body.thinking.display
        paths = [path for path, _ in tools]
        renderer = MessageRenderer(request, paths, hides_thoughts=display == "omitted")
        running_record().field_names = renderer.field_names
        if request.tools:
            examined = await examiner.tools(request.tools, request.caller)
            request = replace(request, tools=examined)
        if (asked := body.asked_format) is not None:
            constraint = await examiner.constraint(asked, request.caller)
            request = replace(request, constraint=constraint)
        return Exchange(with_patience(request), served.card, renderer)

    @router.post("", name="create", responses=MESSAGE, openapi_extra=TAKES_HEADER)
    async def create_message(http: Request, body: MessageRequest) -> Response:
        """The model's next message, in one piece or, with `stream`, as a stream of events."""
        running_record().is_private = body.store is False
        framing = MESSAGE_EVENTS if body.stream else None
        return answerer.answer(await exchange(http, body), framing)

    @router.post("/count_tokens", responses=answers(TokenCount, *BODY, 422))
    async def count_tokens(http: Request, body: CountRequest) -> Response:
        """The tokens of the prompt, counted by the model's tokenizer; generates nothing."""
        asked = await exchange(http, body)
        request, *_ = await service.engine_requests(asked.request, asked.card)
        count = len((await tokenizer.admit(request)).ids)
        record = running_record()
        record.id, record.model, record.prompt_tokens = request.id, request.model.name, count
        return JSONResponse({"input_tokens": count})

    return router
