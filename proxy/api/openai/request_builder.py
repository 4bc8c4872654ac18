"""A checked body -> the exchange that it asks for: request, card, renderer; and the settings'
limits on fields of one request.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import dataclass, field, replace
from typing import TypeVar

from pydantic import BaseModel

from proxy.api.http.answer import Exchange, Renderer
from proxy.api.http.body_reader import converted
from proxy.api.http.own_headers import with_patience
from proxy.api.openai.answer_extras import ExtrasRenderer, prompt_annotations
from proxy.api.openai.chat_body import ChatCompletionBody
from proxy.api.openai.completion_body import CompletionBody
from proxy.api.openai.field_types import MOST_MESSAGES, MOST_STOPS, MOST_TOOLS, Most
from proxy.api.openai.generation_body import GenerationBody, merged, tier_of
from proxy.api.openai.renderers import ChatRenderer, CompletionRenderer
from proxy.domain.errors import ErrorCode, InvalidRequest, echoed, unsupported
from proxy.domain.identity import TENANT_NAME, Caller, current_caller, is_reserved
from proxy.domain.record import running_record
from proxy.domain.request import GenerationRequest
from proxy.domain.tokenizer import Tokenizer
from proxy.generation.service import Service
from proxy.language.structured.constraint_request import Examiner
from proxy.models.registry import Registry, ServedModel

Body = TypeVar("Body", bound=GenerationBody)
_MOST = {
    name: bound.count
    for name, declared in GenerationBody.model_fields.items()
    for bound in declared.metadata
    if isinstance(bound, Most) and name != "stop"  # a text or a list, see check_stops
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldLimits:
    """Numbers of elements, and (`_bytes`) bytes of UTF-8.

    choices: prompts x candidates. priority_words: what words of `metadata.priority`, and service
    tiers, stand for.
    """

    stop_bytes: int = 4096
    messages: int = MOST_MESSAGES
    choices: int = 128
    tools: int = MOST_TOOLS
    tools_bytes: int = 256_000
    priority_words: Mapping[str, int] = field(default_factory=dict)

    def has_tier(self, name: str | None) -> bool:
        tier = tier_of(name)
        return tier is None or tier in self.priority_words

    def check(self, body: GenerationBody) -> None:
        """Raises InvalidRequest."""
        if body.service_tier is not None and not self.has_tier(body.service_tier):
            raise unsupported(
                f"Invalid value for 'service_tier': {body.service_tier!r} is not a tier of this "
                "server: use 'auto' or 'default'.",
                param="service_tier",
            )
        if body.stop is not None:
            self.check_stops("stop", body.stops)
        for name, most in _MOST.items():
            if (given := getattr(body, name)) is not None:
                _check(name, len(given), most)
        if isinstance(body, ChatCompletionBody):
            self.check_chat(body.messages, body.tools)
            if body.n is not None:
                _check("n", body.n, self.choices)
        elif isinstance(body, CompletionBody):
            first = body.prompt[0] if body.prompt else ""
            is_one = isinstance(body.prompt, str) or isinstance(first, int)
            candidates = max(body.n or 1, body.best_of or 1)
            _check("prompt", candidates * (1 if is_one else len(body.prompt)), self.choices)

    def check_stops(self, name: str, stops: Sequence[str]) -> None:
        """name: of the field. Raises InvalidRequest."""
        _check(name, len(stops), MOST_STOPS.count)
        stop_bytes = sum(len(stop.encode()) for stop in stops)
        _check(name, stop_bytes, self.stop_bytes, of="bytes ")

    def check_chat(self, messages: Sized | None, tools: Sequence[BaseModel] | None) -> None:
        """Checks a chat's messages and tools; used for every protocol. Raises InvalidRequest."""
        if messages is not None:
            _check("messages", len(messages), self.messages)
        if tools:
            _check("tools", len(tools), self.tools)
            tools_bytes = sum(len(tool.model_dump_json().encode()) for tool in tools)
            _check("tools", tools_bytes, self.tools_bytes, of="bytes ")


def _check(param: str, count: int, most: int, *, of: str = "") -> None:
    if count > most:
        is_messages = param == "messages"
        raise InvalidRequest(
            f"Invalid value for '{param}': at most {most} {of}are allowed, {count} are asked for.",
            code=ErrorCode.INVALID_MESSAGES if is_messages else ErrorCode.INVALID_PARAMETER,
            param=param,
        )


def _tenant_in(metadata: Mapping[str, str]) -> str | None:
    name = metadata.get("tenant_id")
    if name is not None and (not re.fullmatch(TENANT_NAME, name) or is_reserved(name)):
        raise InvalidRequest(
            f"Invalid value for 'metadata.tenant_id': {echoed(name)} cannot be a tenant. Use up to "
            "128 letters, digits and '._:@-', and neither 'default' nor an address.",
            param="metadata.tenant_id",
        )
    return name


class RequestBuilder:
    """Used by all routes that take OpenAI's bodies.

    ceiling: the highest priority that a caller gets. tenant_from_metadata: callers without a key
    name their tenant in `metadata`.

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
        ceiling: Callable[[Caller], int],
        reasoning_fields: tuple[str, ...],
        tenant_from_metadata: bool,
    ) -> None:
        self._models = models
        self._limits = limits
        self._examiner = examiner
        self._service = service
        self._tokenizer = tokenizer
        self._ceiling = ceiling
        self._reasoning_fields = reasoning_fields
        self._tenant_from_metadata = tenant_from_metadata

    async def chat(self, body: ChatCompletionBody, caller: str) -> Exchange:
        body, served = self.resolved(body, "prompt_token_ids")
        if body.tool_choice is not None or body.dropped:
            body.check_choice(served.card.server_tools.tools)
        request = await converted(body.to_domain, caller)
        renderer = ChatRenderer(body, request, served.card, self._reasoning_fields)
        running_record().field_names = renderer.field_names
        return await self.exchange(body, request, served, renderer)

    async def completion(self, body: CompletionBody, caller: str) -> Exchange:
        body, served = self.resolved(body, "prompt")
        request = body.to_domain(caller, served.card)
        renderer = CompletionRenderer(body, request, served.card)
        running_record().field_names = renderer.field_names
        return await self.exchange(body, request, served, renderer)

    def resolved(self, body: Body, ids_field: str) -> tuple[Body, ServedModel]:
        """The body with one value for each thing, with the tier that it gets, and for the model
        that answers it, which may be a fallback of the one it names.
        """
        self._limits.check(body)
        words, has_tier = self._limits.priority_words, body.service_tier is not None
        if body.nvext is not None or body.metadata is not None or has_tier:
            body = merged(body, words, ids_field=ids_field)
        if has_tier:
            tier = body.tier
            is_served = tier is not None and words[tier] <= self._ceiling(current_caller.get())
            body = body.model_copy(update={"service_tier": tier if is_served else "default"})
        served = self._models.serving(body.model)
        if served.fallback_from is not None:
            body = body.model_copy(update={"model": served.name})
        return body, served

    async def exchange(
        self,
        body: GenerationBody,
        request: GenerationRequest,
        served: ServedModel,
        renderer: Renderer,
    ) -> Exchange:
        """With the request's constraint and tools, once both are examined, and with what
        `include_timings` and `nvext` add to the answer.
        """
        if request.tools:
            tools = await self._examiner.tools(request.tools, request.caller)
            request = replace(request, tools=tools)
        if (asked := body.asked_format) is not None:
            constraint = await self._examiner.constraint(asked, request.caller)
            request = replace(request, constraint=constraint)
        if self._tenant_from_metadata and current_caller.get().is_shared:
            request = replace(request, tenant=_tenant_in(request.metadata))
        if served.fallback_from is not None:
            request = replace(request, fallback_from=served.fallback_from)
        request = with_patience(request)
        if not body.include_timings and body.nvext is None:
            return Exchange(request, served.card, renderer)
        names = () if body.nvext is None else body.nvext.annotations or ()
        before = await prompt_annotations(
            self._service, self._tokenizer, request, served.card, names
        )
        return Exchange(
            request, served.card, ExtrasRenderer(renderer, body, request, served.card, before)
        )
