"""A checked body -> the request that it asks for, and what renders its answer."""

from __future__ import annotations

from dataclasses import replace

from triton_openai.proxy.api.answers.answer import Renderer, in_words
from triton_openai.proxy.api.openai import chat, completions
from triton_openai.proxy.api.openai.answers.annotations import Annotator
from triton_openai.proxy.api.openai.answers.chat_renderer import ChatRenderer
from triton_openai.proxy.api.openai.answers.head import fingerprint_of
from triton_openai.proxy.api.openai.answers.nvext_renderer import NvExtRenderer
from triton_openai.proxy.api.openai.completions import CompletionRenderer
from triton_openai.proxy.api.openai.requests import nvext
from triton_openai.proxy.api.openai.requests.bodies import (
    ChatCompletionBody,
    CompletionBody,
    GenerationBody,
)
from triton_openai.proxy.api.openai.requests.limits import Limits
from triton_openai.proxy.domain.request import GenerationRequest
from triton_openai.proxy.models.registry import Registry
from triton_openai.proxy.structured.examiner import Examiner


class Asking:
    """Shared by all routes that take OpenAI's bodies. Both verbs raise as `limits`, the
    registry and `structured.examiner` do."""

    def __init__(
        self,
        registry: Registry,
        limits: Limits,
        examiner: Examiner,
        annotator: Annotator,
        *,
        reasoning_fields: tuple[str, ...],
    ) -> None:
        self._registry = registry
        self._limits = limits
        self._examiner = examiner
        self._annotator = annotator
        self._reasoning_fields = reasoning_fields

    async def chat(
        self, body: ChatCompletionBody, caller: str
    ) -> tuple[GenerationRequest, Renderer]:
        self._limits.check(body)
        body = nvext.merged(body, ids_field="prompt_token_ids")
        self._limits.check_priority(body)
        offered = self._registry.known(body.model).server_tools.tools
        body.check_choice([tool.name for tool in offered])
        request = await self._constrained(chat.to_domain(body, caller), body)
        renderer = ChatRenderer(
            body,
            request,
            fingerprint=self._fingerprint(body.model),
            reasoning_fields=self._reasoning_fields,
        )
        return request, await self._extended(body, request, renderer)

    async def completion(
        self, body: CompletionBody, caller: str
    ) -> tuple[GenerationRequest, Renderer]:
        self._limits.check(body)
        body = nvext.merged(body, ids_field="prompt")
        self._limits.check_priority(body)
        card = self._registry.known(body.model)
        request = await self._constrained(completions.to_domain(body, card, caller), body)
        fingerprint = self._fingerprint(body.model)
        renderer = CompletionRenderer(body, request, fingerprint=fingerprint)
        return request, await self._extended(body, request, renderer)

    async def _extended(
        self, body: GenerationBody, request: GenerationRequest, renderer: Renderer
    ) -> Renderer:
        """With what `nvext` asks to be told."""
        if body.nvext is None:
            return renderer
        with in_words(renderer.field_names):
            before = await self._annotator.of_prompt(request, body.nvext.annotations or ())
        card = self._registry.known(body.model)
        return NvExtRenderer(renderer, body.nvext, request, card, before)

    async def _constrained(
        self, request: GenerationRequest, body: GenerationBody
    ) -> GenerationRequest:
        """With the caller's constraint of the answer, and its tools, both examined."""
        if request.tools:
            tools = await self._examiner.tools(request.tools, request.caller)
            request = replace(request, tools=tools)
        if (asked := body.asked_format) is not None:
            constraint = await self._examiner.constraint(asked, request.caller)
            request = replace(request, constraint=constraint)
        return request

    def _fingerprint(self, model: str) -> str:
        return fingerprint_of(self._registry.known(model))
