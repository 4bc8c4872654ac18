"""What the choices of one request share, made once: rules, and prompts as text. For the service."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from typing_extensions import assert_never

from triton_openai.proxy.domain import plain_spans
from triton_openai.proxy.domain.engine import EngineRequest
from triton_openai.proxy.domain.errors import InvalidRequest
from triton_openai.proxy.domain.model import ModelCard
from triton_openai.proxy.domain.request import (
    ChatPrompt,
    GenerationRequest,
    Message,
    PromptBatch,
    TextPrompt,
    TokenPrompt,
)
from triton_openai.proxy.domain.sandbox import Sandbox, TooCostly
from triton_openai.proxy.domain.tools import Tool
from triton_openai.proxy.generation.rules import RuleBook, Rules
from triton_openai.proxy.prompting import chat_template, control_tokens, infilling
from triton_openai.proxy.prompting.callers_text import RenderedPrompt, TooLongToMark
from triton_openai.proxy.syntax import parsers

# What is rendered on the event loop: a template takes some 20 microseconds a message.
FEW_MESSAGES, FEW_TOOLS, FEW_CHARACTERS = 32, 16, 32_768
FEW_TOOL_CHARACTERS = 16_384  # of the schemas of all tools
FEW_VALUES, SHORT_VALUE = 32, 256
# Of a prompt that may hold callers' control tokens: it is rendered up to three times.
FEW_MARKED_CHARACTERS = 8_192


class Preparation:
    """Of one request, whose later rounds may have other prompts and tools."""

    def __init__(
        self,
        card: ModelCard,
        sandbox: Sandbox,
        rule_book: RuleBook,
        *,
        timeout_s: float,
        isolates_caches: bool = False,
    ) -> None:
        """isolates_caches: callers share no cached prefix, where the engine can keep them apart."""
        self._card = card
        self._sandbox = sandbox
        self._rule_book = rule_book
        self._timeout_s = timeout_s
        self._isolates_caches = isolates_caches
        self._rules: dict[object, Rules] = {}
        self._texts: dict[object, RenderedPrompt | None] = {}
        self._asked: dict[int, EngineRequest] = {}
        self._kept: list[GenerationRequest] = []  # so that the ids below stay theirs

    async def rules(self, request: GenerationRequest) -> Rules:
        """Raises InvalidRequest: the model cannot be held to them."""
        key = _rules_key(request)
        if key not in self._rules:
            self._kept.append(request)
            self._rules[key] = await self._rule_book.rules(request, self._card)
        return self._rules[key]

    def known_rules(self, request: GenerationRequest) -> Rules:
        """Of a request that `rules` was asked about, or of another of its choices."""
        return self._rules[_rules_key(request)]

    async def text(self, request: GenerationRequest) -> str | None:
        """The prompt's text; None where it is given as token ids.

        Raises:
            InvalidRequest: it cannot be rendered.
        """
        written = await self._prompt(request)
        return None if written is None else written.text

    async def _prompt(self, request: GenerationRequest) -> RenderedPrompt | None:
        """As `text`, and where callers' control tokens stand in it."""
        key = (id(request.prompt), *_tools_key(request))
        if key not in self._texts:
            self._kept.append(request)
            self._texts[key] = await self._written(request)
        return self._texts[key]

    async def engine_request(self, request: GenerationRequest) -> EngineRequest:
        """Raises InvalidRequest: the model cannot take it."""
        if (known := self._asked.get(id(request))) is not None:
            return known
        asked = await self._made(request)
        self._kept.append(request)
        self._asked[id(request)] = asked
        return asked

    async def _made(self, request: GenerationRequest) -> EngineRequest:
        card = self._card
        parsers.check_thinking_budget(request, card)
        rules = await self.rules(request)
        written = await self._prompt(request)
        text, spans = ("", b"") if written is None else (written.text, written.plain_spans)
        asked = EngineRequest(
            id=request.id,
            model=card,
            text=None if written is None else text,
            plain_spans=spans,
            token_ids=request.prompt.ids if isinstance(request.prompt, TokenPrompt) else None,
            add_special_tokens=_adds_special_tokens(request, card),
            max_tokens=request.max_tokens,
            timeout_s=self._timeout_s,
            sampling=request.sampling.with_defaults(card.sampling),
            constraint=rules.guide(plain_spans.opening(text, spans, rules.begun)),
            prompt_limit=request.prompt_limit,
            echoes_prompt=request.echoes_tokens,
            wants_token_ids=_wants_token_ids(request, card),
            wants_log_prob_ids=request.logs_token_ids,
            priority=request.priority,
            cache_salt=self._cache_salt(request),
            token_cap=request.token_cap,
            prompt_cap=request.prompt_cap,
        )
        if missing := sorted(asked.asks_for - card.capabilities):
            raise InvalidRequest(
                f"The model {card.name!r} does not support this parameter.",
                code="unsupported_parameter",
                param=missing[0],
            )
        return asked

    def _cache_salt(self, request: GenerationRequest) -> str | None:
        """A caller's own begins with who it is, so that it cannot name another's."""
        if not self._isolates_caches or "cache_salt" not in self._card.capabilities:
            return request.cache_salt
        caller = hashlib.sha256(request.caller.encode()).hexdigest()[:16]
        return f"{caller}:{request.cache_salt or ''}"

    async def _written(self, request: GenerationRequest) -> RenderedPrompt | None:
        match request.prompt:
            case ChatPrompt():
                return await self._rendered(request, request.prompt)
            case TextPrompt() if _begins_document(request, self._card):
                return RenderedPrompt(self._card.facts.bos_token)
            case TextPrompt():
                return RenderedPrompt(infilling.text_of(request.prompt, self._card))
            case TokenPrompt():
                return None
            case PromptBatch():
                raise TypeError("a batch is taken apart before it gets here")
            case _:
                assert_never(request.prompt)

    async def _rendered(self, request: GenerationRequest, prompt: ChatPrompt) -> RenderedPrompt:
        rendered = await self._unchecked(request, prompt)
        if rendered.plain_spans and "plain_spans" not in self._card.capabilities:
            raise control_tokens.cannot_be_plain(rendered.text, rendered.plain_spans, self._card)
        return rendered

    async def _unchecked(self, request: GenerationRequest, prompt: ChatPrompt) -> RenderedPrompt:
        card, tools = self._card, request.callable_tools
        options: dict[str, Any] = {
            "control": control_tokens.of_card(card),
            "takes_callers_values": card.takes_template_values,
            "takes_templates": card.takes_templates,
            "thinks": parsers.families_of(card).reasoning is not None,
        }
        if _is_small(prompt) and _are_small(tools):
            with suppress(TooLongToMark):
                return chat_template.rendered(
                    prompt, card.facts, tools, marks_at_most=FEW_MARKED_CHARACTERS, **options
                )
        try:
            return await self._sandbox.run(
                request.caller, chat_template.rendered, prompt, card.facts, tools, **options
            )
        except TooCostly as error:
            raise InvalidRequest(
                f"The chat template cannot render this request: {error}. Send less.",
                code="invalid_messages",
                param="messages",
            ) from error


def _rules_key(request: GenerationRequest) -> tuple[Any, ...]:
    begun = request.prompt.begun if isinstance(request.prompt, ChatPrompt) else None
    return type(request.prompt), begun, id(request.constraint), *_tools_key(request)


def _tools_key(request: GenerationRequest) -> tuple[Any, ...]:
    return id(request.tools), request.tool_choice


def _adds_special_tokens(request: GenerationRequest, card: ModelCard) -> bool:
    """A chat template writes its own."""
    if request.adds_special_tokens is None:
        has_own = isinstance(request.prompt, ChatPrompt) or _begins_document(request, card)
        return not has_own
    return request.adds_special_tokens


def _begins_document(request: GenerationRequest, card: ModelCard) -> bool:
    """Whether the BOS token stands for an empty prompt: many tokenizers do not add it."""
    prompt = request.prompt
    is_empty = isinstance(prompt, TextPrompt) and not prompt.text and prompt.suffix is None
    return is_empty and request.adds_special_tokens is None and bool(card.facts.bos_token)


def _wants_token_ids(request: GenerationRequest, card: ModelCard) -> bool:
    hides_stop_tokens = bool(request.sampling.stop_token_ids) and not request.includes_stop
    return (
        request.returns_token_ids
        or request.logs_token_ids
        or hides_stop_tokens
        or bool(parsers.visible_special_tokens(request, card))
    )


def _is_small(prompt: ChatPrompt) -> bool:
    """Whether rendering takes little. A caller's template is a program, which may take any time."""
    if prompt.template is not None or len(prompt.messages) > FEW_MESSAGES:
        return False
    values = (*prompt.callers_values.values(), *prompt.template_values.values())
    if len(values) > FEW_VALUES or not all(map(_is_plain, values)):
        return False
    return sum(map(_characters, prompt.messages)) <= FEW_CHARACTERS


def _is_plain(value: object) -> bool:
    """Whether no template can be made to work long with it: not a number, which it may count to or
    repeat a text by, nor a text that reads as a number or a format.
    """
    if not isinstance(value, str):
        return value is None or isinstance(value, bool)
    if len(value) > SHORT_VALUE or "%" in value or "{" in value:
        return False
    try:
        float(value)
    except ValueError:
        return True
    return False


def _are_small(tools: Sequence[Tool]) -> bool:
    if len(tools) > FEW_TOOLS:
        return False
    return sum(len(repr(tool.parameters)) for tool in tools) <= FEW_TOOL_CHARACTERS


def _characters(message: Message) -> int:
    arguments = sum(len(call.arguments) for call in message.tool_calls)
    return len(message.content or "") + len(message.reasoning or "") + arguments
