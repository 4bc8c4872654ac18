"""Writes a request's prompt as the text that the tokenizer gets. Called by `prepare`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import structlog
from cachetools import LRUCache
from typing_extensions import assert_never

from proxy.domain.errors import ECHO_AT_MOST, ErrorCode, InvalidRequest, unsupported
from proxy.domain.image import Image
from proxy.domain.model import ModelCard
from proxy.domain.request import (
    ChatPrompt,
    GenerationRequest,
    PromptBatch,
    TextPrompt,
    TokenPrompt,
)
from proxy.domain.sandbox import Sandbox, TooCostly
from proxy.domain.tools import Tool
from proxy.language.prompting import chat_template, control_tokens
from proxy.language.prompting.callers_text import RenderedPrompt, TooLongToMark
from proxy.language.prompting.template_forms import Forms
from proxy.language.syntax.parsers import GENERIC, CardSyntax, input_escapes, syntax_of

logger = structlog.get_logger(__name__)

MOST_TEMPLATES = 256  # whose forms are remembered
# Chats within these limits are rendered on the event loop: about 20 microseconds a message.
FEW_MESSAGES, FEW_TOOLS, FEW_CHARACTERS = 32, 16, 32_768
FEW_TOOL_CHARACTERS = 16_384  # of the schemas of all tools
FEW_VALUES, SHORT_VALUE = 32, 256
# Of a prompt that may hold callers' control tokens: it is rendered up to three times.
FEW_MARKED_CHARACTERS = 8_192


class PromptWriter:
    """Renders small chats on the event loop, and larger ones in the sandbox."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        # by template; None: its probes take too long, so it never runs on the event loop
        self._forms: LRUCache[str, Forms | None] = LRUCache(MOST_TEMPLATES)

    async def written(
        self, request: GenerationRequest, card: ModelCard, syntax: CardSyntax
    ) -> RenderedPrompt | None:
        """The prompt's text, with the control tokens in it that are the caller's words; None for
        token ids.

        Raises:
            InvalidRequest: it cannot be rendered.
        """
        match request.prompt:
            case ChatPrompt():
                if request.prompt.images and "images" not in card.capabilities:
                    raise unsupported(
                        f"The model {card.name!r} reads no images: send text only.",
                        param=request.prompt.place_of_image(),
                    )
                rendered = await self._rendered(request, request.prompt, card, syntax)
                if rendered.plain_spans and "plain_spans" not in card.capabilities:
                    raise control_tokens.cannot_be_plain(rendered.text, rendered.plain_spans, card)
                return rendered
            case TextPrompt() if _begins_document(request, card):
                return RenderedPrompt(card.facts.bos_token)
            case TextPrompt():
                return RenderedPrompt(_text(request.prompt, card))
            case TokenPrompt():
                return None
            case PromptBatch():
                raise TypeError("a batch is split before its prompts are written")
            case _:
                assert_never(request.prompt)

    async def _rendered(
        self, request: GenerationRequest, prompt: ChatPrompt, card: ModelCard, syntax: CardSyntax
    ) -> RenderedPrompt:
        tools = request.callable_tools
        options: dict[str, Any] = {
            "control": control_tokens.of_card(card),
            "takes_callers_values": card.takes_template_values,
            "takes_templates": card.takes_templates,
            "reasoning": syntax.reasoning,
            "words_tools": syntax.tools == GENERIC,
            "family": syntax.tools,
            "escapes": input_escapes(syntax.tools),
        }
        known = await self._known(card, request.caller)
        options["known_forms"] = {one: forms for one, forms in known.items() if forms}
        if all(known.values()) and _is_small(prompt) and (not tools or _are_small(tools)):
            with suppress(TooLongToMark):
                return chat_template.rendered(
                    prompt, card.facts, tools, marks_at_most=FEW_MARKED_CHARACTERS, **options
                )
        if prompt.images:  # templates do not read them
            prompt = replace(prompt, images=(Image(place=prompt.place_of_image()),))
        try:
            return await self._sandbox.run(
                request.caller, chat_template.rendered, prompt, card.facts, tools, **options
            )
        except TooCostly as error:
            raise InvalidRequest(
                f"The chat template cannot render this request: {error}. Send less.",
                code=ErrorCode.INVALID_MESSAGES,
                param="messages",
            ) from error

    async def learn(self, card: ModelCard) -> None:
        """Finds out what the model's templates want, and compiles them, before its first chat."""
        if (reason := syntax_of(card).refused) is not None:
            logger.warning(
                "a response template is not in use",
                model=card.name,
                reason=reason,
                advice="name `tool_parser` and `reasoning_parser` in models.yaml, if need be",
            )
        try:
            if all((await self._known(card, "")).values()):
                await asyncio.to_thread(chat_template.prepare, card.facts)
        except Exception as error:  # such as a sandbox that cannot start
            logger.error(
                "a chat template could not be examined",
                model=card.name,
                exc_info=error,
                advice="the model's first chat tries again; look at the traceback if it fails, too",
            )

    async def _known(self, card: ModelCard, caller: str) -> Mapping[str, Forms | None]:
        """The forms of the model's templates. None: not known, so that it must run in the sandbox.

        Raises RateLimited: as the sandbox.
        """
        templates = filter(None, (card.facts.chat_template, card.facts.tool_template))
        return {one: await self._forms_of(one, caller) for one in templates}

    async def _forms_of(self, template: str, caller: str) -> Forms | None:
        if template not in self._forms:
            try:
                found = await self._sandbox.run(caller, chat_template.forms_of, template)
            except TooCostly as error:
                logger.warning(
                    "a chat template takes too long: every chat with it runs in the sandbox",
                    reason=str(error),
                    template=template[:ECHO_AT_MOST],
                    advice="give the model another one: `chat_template: FILE` in models.yaml",
                )
                found = None
            self._forms[template] = found
        return self._forms[template]


def _text(prompt: TextPrompt, card: ModelCard) -> str:
    """With a suffix: prefix, suffix, then the answer. All model families support this order.

    Raises:
        InvalidRequest: there is a suffix, and the model has no tokens for it.
    """
    if prompt.suffix is None:
        return prompt.text
    if card.facts.infilling is None:
        raise unsupported(
            f"The model {card.name!r} was not trained to fill in the middle: its tokenizer has no "
            "such tokens. Leave out 'suffix'.",
            param="suffix",
        )
    before_prefix, before_suffix, before_middle = card.facts.infilling
    return f"{before_prefix}{prompt.text}{before_suffix}{prompt.suffix}{before_middle}"


def adds_special_tokens(request: GenerationRequest, card: ModelCard) -> bool:
    """Whether the tokenizer adds its BOS and EOS. A chat template writes its own."""
    if request.adds_special_tokens is None:
        has_own = isinstance(request.prompt, ChatPrompt) or _begins_document(request, card)
        return not has_own
    return request.adds_special_tokens


def _begins_document(request: GenerationRequest, card: ModelCard) -> bool:
    """Whether the BOS token stands for an empty prompt: many tokenizers do not add it."""
    prompt = request.prompt
    is_empty = isinstance(prompt, TextPrompt) and not prompt.text and prompt.suffix is None
    return is_empty and request.adds_special_tokens is None and bool(card.facts.bos_token)


def _is_small(prompt: ChatPrompt) -> bool:
    """Whether rendering is cheap. A caller's template is a program, which may take any time."""
    if prompt.template is not None or len(prompt.messages) > FEW_MESSAGES:
        return False
    values = (*prompt.callers_values.values(), *prompt.template_values.values())
    if len(values) > FEW_VALUES or not all(map(_is_plain, values)):
        return False
    characters = 0
    for message in prompt.messages:
        characters += len(message.content or "") + len(message.reasoning or "")
        for call in message.tool_calls:
            characters += len(call.arguments)
    return characters <= FEW_CHARACTERS


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
    sizes = (len(repr(tool.parameters)) + len(repr(tool.grammar)) for tool in tools)
    return sum(sizes) <= FEW_TOOL_CHARACTERS
