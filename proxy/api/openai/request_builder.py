"""Turns a checked body into a GenerationRequest and the renderer of its answer."""

from __future__ import annotations

from dataclasses import replace

from triton_openai.proxy.api.answers.answer import Renderer, in_words
from triton_openai.proxy.api.openai import chat_request, completion_request
from triton_openai.proxy.api.openai.answers.annotations import Annotator
from triton_openai.proxy.api.openai.answers.chat_renderer import ChatRenderer
from triton_openai.proxy.api.openai.answers.completion_renderer import CompletionRenderer
from triton_openai.proxy.api.openai.answers.nvext_renderer import NvExtRenderer
from triton_openai.proxy.api.openai.answers.response_head import system_fingerprint
from triton_openai.proxy.api.openai.requests import nvext
from triton_openai.proxy.api.openai.requests.chat_body import ChatCompletionBody
from triton_openai.proxy.api.openai.requests.completion_body import CompletionBody
from triton_openai.proxy.api.openai.requests.field_limits import FieldLimits
from triton_openai.proxy.api.openai.requests.generation_body import GenerationBody
from triton_openai.proxy.domain.request import GenerationRequest
from triton_openai.proxy.models.registry import Registry
from triton_openai.proxy.structured.examiner import Examiner


class RequestBuilder:
    """Used by all routes that take OpenAI's bodies.

    Both methods raise what the field limits, the registry and the examiner raise.
    """

    def __init__(
        self,
        registry: Registry,
        limits: FieldLimits,
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
        request = await self._constrained(chat_request.to_domain(body, caller), body)
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
        request = await self._constrained(completion_request.to_domain(body, card, caller), body)
        fingerprint = self._fingerprint(body.model)
        renderer = CompletionRenderer(body, request, fingerprint=fingerprint)
        return request, await self._extended(body, request, renderer)

    async def _extended(
        self, body: GenerationBody, request: GenerationRequest, renderer: Renderer
    ) -> Renderer:
        """The renderer, with the annotations and extra fields that `nvext` asks for."""
        if body.nvext is None:
            return renderer
        with in_words(renderer.field_names):
            prompt_annotations = await self._annotator.of_prompt(
                request, body.nvext.annotations or ()
            )
        card = self._registry.known(body.model)
        return NvExtRenderer(renderer, body.nvext, request, card, prompt_annotations)

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

    def _fingerprint(self, model: str) -> str:
        return system_fingerprint(self._registry.known(model))
