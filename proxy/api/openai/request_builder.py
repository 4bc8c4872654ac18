"""A checked body -> the exchange that it asks for: request, card, renderer."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from triton_openai.proxy.api.answers.exchange import Exchange, Renderer
from triton_openai.proxy.api.bodies.queue_patience import with_patience
from triton_openai.proxy.api.errors import ProtocolNames
from triton_openai.proxy.api.openai import chat_request, completion_request
from triton_openai.proxy.api.openai.answers.annotations import Annotator
from triton_openai.proxy.api.openai.answers.chat_renderer import ChatRenderer
from triton_openai.proxy.api.openai.answers.completion_renderer import CompletionRenderer
from triton_openai.proxy.api.openai.answers.nvext_renderer import NvExtRenderer
from triton_openai.proxy.api.openai.answers.response_head import system_fingerprint
from triton_openai.proxy.api.openai.answers.timings_renderer import TimingsRenderer
from triton_openai.proxy.api.openai.requests import nvext, priority_fields
from triton_openai.proxy.api.openai.requests.chat_body import ChatCompletionBody
from triton_openai.proxy.api.openai.requests.completion_body import CompletionBody
from triton_openai.proxy.api.openai.requests.field_limits import FieldLimits
from triton_openai.proxy.api.openai.requests.generation_body import GenerationBody
from triton_openai.proxy.domain.request import GenerationRequest
from triton_openai.proxy.models.callers_models import CallersModels, ServedModel
from triton_openai.proxy.structured.examiner import Examiner

Body = TypeVar("Body", ChatCompletionBody, CompletionBody)


class RequestBuilder:
    """Used by all routes that take OpenAI's bodies.

    Both methods raise what the field limits, the registry and the examiner raise.
    """

    def __init__(
        self,
        models: CallersModels,
        limits: FieldLimits,
        examiner: Examiner,
        annotator: Annotator,
        *,
        reasoning_fields: tuple[str, ...],
    ) -> None:
        self._models = models
        self._limits = limits
        self._examiner = examiner
        self._annotator = annotator
        self._reasoning_fields = reasoning_fields

    async def chat(self, body: ChatCompletionBody, caller: str) -> Exchange:
        self._limits.check(body)
        body = nvext.merged(body, ids_field="prompt_token_ids")
        body = priority_fields.merged(body)
        body, served = self._served(body)
        card = served.card
        body.check_choice([tool.name for tool in card.server_tools.tools])
        request = await self._constrained(chat_request.to_domain(body, caller), body)
        renderer = ChatRenderer(
            body,
            request,
            fingerprint=system_fingerprint(card),
            reasoning_fields=self._reasoning_fields,
        )
        return await self._extended(body, _exchange(request, served, renderer))

    async def completion(self, body: CompletionBody, caller: str) -> Exchange:
        self._limits.check(body)
        body = nvext.merged(body, ids_field="prompt")
        body = priority_fields.merged(body)
        body, served = self._served(body)
        card = served.card
        request = await self._constrained(completion_request.to_domain(body, card, caller), body)
        renderer = CompletionRenderer(body, request, fingerprint=system_fingerprint(card))
        return await self._extended(body, _exchange(request, served, renderer))

    def _served(self, body: Body) -> tuple[Body, ServedModel]:
        """The body for the model that answers it, which may be a fallback of the one it names."""
        served = self._models.serving(body.model)
        if served.fallback_from is not None:
            body = body.model_copy(update={"model": served.name})
        return body, served

    async def _extended(self, body: GenerationBody, exchange: Exchange) -> Exchange:
        """With renderers of what `include_timings` and `nvext` ask for, where the body has them."""
        if body.include_timings:
            timed = TimingsRenderer(exchange.renderer, exchange.request)
            exchange = replace(exchange, renderer=timed)
        if body.nvext is None:
            return exchange
        request, card, inner = exchange.request, exchange.card, exchange.renderer
        with ProtocolNames(inner.field_names):
            before = await self._annotator.of_prompt(request, card, body.nvext.annotations or ())
        renderer: Renderer = NvExtRenderer(inner, body.nvext, request, card, before)
        return replace(exchange, renderer=renderer)

    async def _constrained(
        self, request: GenerationRequest, body: GenerationBody
    ) -> GenerationRequest:
        """The request with its constraint and tools, after both were examined."""
        if request.tools:
            tools = await self._examiner.tools(request.tools, request.caller)
            request = replace(request, tools=tools)
        if (asked := body.asked_format) is not None:
            constraint = await self._examiner.constraint(asked, request.caller)
            request = replace(request, constraint=constraint)
        return request


def _exchange(request: GenerationRequest, served: ServedModel, renderer: Renderer) -> Exchange:
    if served.fallback_from is not None:
        request = replace(request, fallback_from=served.fallback_from)
    return Exchange(with_patience(request), served.card, renderer)
