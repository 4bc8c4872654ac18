"""A checked body -> the request that it asks for, and what renders its answer."""

from __future__ import annotations

from dataclasses import replace

from proxy.api.openai import chat, completions
from proxy.api.openai.bodies import ChatCompletionBody, CompletionBody, GenerationBody
from proxy.api.openai.chat_renderer import ChatRenderer
from proxy.api.openai.head import fingerprint_of
from proxy.api.openai.limits import Limits
from proxy.domain.request import GenerationRequest
from proxy.registry import Registry
from proxy.structured.asked import constraint


class Asking:
    """Shared by all routes that take OpenAI's bodies. Both verbs raise as `limits`, the
    registry and `structured.asked` do."""

    def __init__(
        self, registry: Registry, limits: Limits, *, reasoning_fields: tuple[str, ...]
    ) -> None:
        self._registry = registry
        self._limits = limits
        self._reasoning_fields = reasoning_fields

    def chat(self, body: ChatCompletionBody) -> tuple[GenerationRequest, ChatRenderer]:
        self._limits.check(body)
        offered = self._registry.known(body.model).server_tools.tools
        body.check_choice([tool.name for tool in offered])
        request = self._constrained(chat.to_domain(body), body)
        renderer = ChatRenderer(
            body,
            request,
            fingerprint=self._fingerprint(body.model),
            reasoning_fields=self._reasoning_fields,
        )
        return request, renderer

    def completion(
        self, body: CompletionBody
    ) -> tuple[GenerationRequest, completions.CompletionRenderer]:
        self._limits.check(body)
        request = self._constrained(completions.to_domain(body), body)
        fingerprint = self._fingerprint(body.model)
        return request, completions.CompletionRenderer(body, request, fingerprint=fingerprint)

    def _constrained(self, request: GenerationRequest, body: GenerationBody) -> GenerationRequest:
        if (asked := body.asked_format) is None:
            return request
        return replace(request, constraint=constraint(asked, self._limits.schemas))

    def _fingerprint(self, model: str) -> str:
        return fingerprint_of(self._registry.known(model))
