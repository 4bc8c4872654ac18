"""A checked body -> the exchange that it asks for: request, card, renderer."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from proxy.api.http.exchange import Exchange, ProtocolNames, Renderer
from proxy.api.http.generation_headers import with_patience
from proxy.api.openai.answer_extras import ExtrasRenderer, prompt_annotations
from proxy.api.openai.answer_fields import system_fingerprint
from proxy.api.openai.chat_body import ChatCompletionBody
from proxy.api.openai.chat_renderer import ChatRenderer
from proxy.api.openai.completion_body import CompletionBody
from proxy.api.openai.completion_renderer import CompletionRenderer
from proxy.api.openai.field_limits import FieldLimits
from proxy.api.openai.generation_body import GenerationBody, merged
from proxy.domain.request import GenerationRequest
from proxy.domain.tokenizer import Tokenizer
from proxy.generation.service import Service
from proxy.language.structured.examiner import Examiner
from proxy.models.registry import Registry, ServedModel

Body = TypeVar("Body", ChatCompletionBody, CompletionBody)


class RequestBuilder:
    """Used by all routes that take OpenAI's bodies.

    Both methods raise what the field limits, the registry and the examiner raise.
    """

    def __init__(
        self,
        models: Registry,
        limits: FieldLimits,
        examiner: Examiner,
        service: Service,
        tokenizer: Tokenizer,
        *,
        reasoning_fields: tuple[str, ...],
    ) -> None:
        self._models = models
        self._limits = limits
        self._examiner = examiner
        self._service = service
        self._tokenizer = tokenizer
        self._reasoning_fields = reasoning_fields

    async def chat(self, body: ChatCompletionBody, caller: str) -> Exchange:
        body, served = self._resolved(body, "prompt_token_ids")
        card = served.card
        body.check_choice(card.server_tools.tools)
        request = await self._examined(body.to_domain(caller), body)
        renderer = ChatRenderer(
            body,
            request,
            fingerprint=system_fingerprint(card),
            reasoning_fields=self._reasoning_fields,
        )
        return await self._exchange(body, request, served, renderer)

    async def completion(self, body: CompletionBody, caller: str) -> Exchange:
        body, served = self._resolved(body, "prompt")
        card = served.card
        request = await self._examined(body.to_domain(caller, card), body)
        renderer = CompletionRenderer(body, request, fingerprint=system_fingerprint(card))
        return await self._exchange(body, request, served, renderer)

    def _resolved(self, body: Body, ids_field: str) -> tuple[Body, ServedModel]:
        """The body with one value for each thing, and for the model that answers it, which may be a
        fallback of the one it names.
        """
        self._limits.check(body)
        body = merged(body, ids_field=ids_field)
        served = self._models.serving(body.model)
        if served.fallback_from is not None:
            body = body.model_copy(update={"model": served.name})
        return body, served

    async def _examined(
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

    async def _exchange(
        self,
        body: GenerationBody,
        request: GenerationRequest,
        served: ServedModel,
        renderer: Renderer,
    ) -> Exchange:
        """With what `include_timings` and `nvext` add to the answer."""
        if served.fallback_from is not None:
            request = replace(request, fallback_from=served.fallback_from)
        request = with_patience(request)
        if not body.include_timings and body.nvext is None:
            return Exchange(request, served.card, renderer)
        names = () if body.nvext is None else body.nvext.annotations or ()
        with ProtocolNames(renderer.field_names):
            before = await prompt_annotations(
                self._service, self._tokenizer, request, served.card, names
            )
        return Exchange(
            request, served.card, ExtrasRenderer(renderer, body, request, served.card, before)
        )
