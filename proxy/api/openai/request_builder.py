"""A checked body -> the exchange that it asks for: request, card, renderer."""

from __future__ import annotations

from dataclasses import replace
from secrets import token_hex
from typing import Any, TypeVar

from proxy.api.answers.exchange import Exchange, Renderer
from proxy.api.bodies.queue_patience import with_patience
from proxy.api.errors import ProtocolNames
from proxy.api.openai.answers.annotations import Annotator
from proxy.api.openai.answers.chat_renderer import ChatRenderer
from proxy.api.openai.answers.completion_renderer import CompletionRenderer
from proxy.api.openai.answers.nvext_renderer import NvExtRenderer
from proxy.api.openai.answers.response_head import system_fingerprint
from proxy.api.openai.answers.timings_renderer import TimingsRenderer
from proxy.api.openai.requests import nvext, priority_fields
from proxy.api.openai.requests.chat_body import ChatCompletionBody
from proxy.api.openai.requests.completion_body import CompletionBody
from proxy.api.openai.requests.field_limits import FieldLimits
from proxy.api.openai.requests.generation_body import GenerationBody
from proxy.domain.model import ModelCard
from proxy.domain.request import (
    ChatPrompt,
    GenerationRequest,
    Prompt,
    PromptBatch,
    SinglePrompt,
    TextPrompt,
    TokenPrompt,
)
from proxy.domain.request_limits import smaller
from proxy.language.structured.examiner import Examiner
from proxy.models.callers_models import CallersModels, ServedModel

# The default: the template need not support it.
DEFAULT_VERBOSITY = ("verbosity", "medium")


def chat_request(body: ChatCompletionBody, caller: str) -> GenerationRequest:
    return GenerationRequest(
        caller=caller,
        id=f"chatcmpl-{token_hex(16)}",
        prompt=_prompt_of_chat(body),
        max_tokens=body.token_limit,
        tools=body.domain_tools,
        tool_choice=body.domain_choice,
        thinking_budget=body.thinking_token_budget,
        offers_server_tools=body.server_tools,
        reports_server_calls=bool(body.server_tool_events),
        calls_in_parallel=body.parallel_tool_calls is not False,
        **body.shared(body.top_log_probs),
    )


def _prompt_of_chat(body: ChatCompletionBody) -> SinglePrompt:
    if body.prompt_token_ids is not None:
        return TokenPrompt(ids=tuple(body.prompt_token_ids))
    if body.takes_raw_prompt:
        return TextPrompt(text=body.messages[0].to_domain().content or "")
    return _chat_prompt(body)


def _chat_prompt(body: ChatCompletionBody) -> ChatPrompt:
    values = {name: getattr(body, name) for name in ("reasoning_effort", "verbosity")}
    continues = bool(body.continue_final_message)
    return ChatPrompt(
        messages=tuple(message.to_domain() for message in body.messages),
        adds_generation_prompt=not continues and body.add_generation_prompt is not False,
        continues_last=continues,
        template_values={
            name: value
            for name, value in values.items()
            if value is not None and (name, value) != DEFAULT_VERBOSITY
        }
        | ({} if body.documents is None else {"documents": body.documents}),
        callers_values=body.chat_template_kwargs or {},
        template=body.chat_template,
    )


DEFAULT_TOKENS = 16  # from OpenAI's specification


def completion_request(body: CompletionBody, card: ModelCard, caller: str) -> GenerationRequest:
    """`card`: the card of the model that the body names."""
    return GenerationRequest(
        caller=caller,
        id=f"cmpl-{token_hex(16)}",
        prompt=_prompt(body.prompt, body.suffix),
        max_tokens=_token_limit(body, card),
        best_of=body.best_of,
        echoes_prompt=bool(body.echo),
        **body.shared(body.logprobs),
    )


def _token_limit(body: CompletionBody, card: ModelCard) -> int | None:
    """None lets the tokenizer apply the model's own default, cut to what the context has left."""
    if body.max_tokens is not None or card.facts.default_max_tokens is not None:
        return body.max_tokens
    return smaller(max(DEFAULT_TOKENS, body.min_tokens or 0), card.limits.max_tokens)


def _prompt(given: str | list[str] | list[int] | list[list[int]], suffix: str | None) -> Prompt:
    if isinstance(given, str) or isinstance(given[0], int):
        return _one_prompt(given, suffix)
    return PromptBatch(prompts=tuple(_one_prompt(one, suffix) for one in given))


def _one_prompt(given: Any, suffix: str | None) -> TextPrompt | TokenPrompt:
    if isinstance(given, str):
        return TextPrompt(text=given, suffix=suffix)
    return TokenPrompt(ids=tuple(given))


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
        request = await self._constrained(chat_request(body, caller), body)
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
        request = await self._constrained(completion_request(body, card, caller), body)
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
