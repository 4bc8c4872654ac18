"""What a model's answers are written in, and the parser for one answer.

Called by `generation`, and wherever a model's syntax matters: policy, prompting, the model list.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from proxy.domain.model import ModelCard, ModelFacts
from proxy.domain.request import ChatPrompt, GenerationRequest
from proxy.domain.tools import ToolMode
from proxy.language.structured.escaped_grammar import IN_JSON, IN_MARKUP, Escapes
from proxy.language.syntax import families
from proxy.language.syntax.call_syntax import INPUT_SCHEMA
from proxy.language.syntax.custom_inputs import CustomInputs
from proxy.language.syntax.families import (
    REASONING_FAMILIES,
    RESPONSE_TEMPLATE,
    TOOL_FAMILIES,
    in_template,
    reasoning_family,
    tool_family,
)
from proxy.language.syntax.output_parser import OutputParser
from proxy.language.syntax.reasoning import ReasoningParser

if TYPE_CHECKING:
    from proxy.language.syntax.response_template import Described

AUTO, NONE, GENERIC = "auto", "none", "generic"
READS_TOOLS = re.compile(r"\{[{%][^'\"{}]*\btools\b")  # in code, and in front of any text there


@dataclass(frozen=True, slots=True, kw_only=True)
class CardSyntax:
    """What depends on the card alone. tools, reasoning: the families' names; None for no family.

    refused: why the checkpoint's response template is not in use; None: it is, or there is none.
    special_tokens: all of the model's. chat_specials: those that are marks of the reasoning, which
    the parser of a chat's answer needs as text; tool_specials: also those of calls.
    """

    tools: str | None
    reasoning: str | None
    reasoning_parser: type[ReasoningParser] | None
    refused: str | None
    special_tokens: Mapping[int, bytes]
    chat_specials: Mapping[int, bytes]
    tool_specials: Mapping[int, bytes]

    def visible_special_tokens(self, request: GenerationRequest) -> Mapping[int, bytes]:
        """The special tokens that answers show as text: all if the caller wants them."""
        if not request.skips_special_tokens:
            return self.special_tokens
        if not isinstance(request.prompt, ChatPrompt):
            return {}
        return self.tool_specials if looks_for_calls(request) else self.chat_specials

    def parser(
        self,
        request: GenerationRequest,
        prompt: str,
        family: str | None,
        *,
        may_be_inside: bool = False,
    ) -> OutputParser | None:
        """The parser for one answer; None where the whole answer is text.

        Args:
            prompt: the rendered prompt.
            family: the name of the family whose parser reads calls; None to read none.
            may_be_inside: as a ReasoningParser's.
        """
        if not isinstance(request.prompt, ChatPrompt):
            return None
        if family is None and self.reasoning_parser is None:
            return None
        starts: tuple[str, ...] = ()
        tools = inputs = None
        if family is not None:
            parser_type = tool_family(family)
            starts = parser_type.clear_starts()
            offered = request.callable_tools
            tools = parser_type(
                {
                    one.name: INPUT_SCHEMA if one.is_custom else one.parameters or {}
                    for one in offered
                },
                only_known=request.tool_choice.allowed is not None,
            )
            in_markup = input_escapes(family) == IN_MARKUP
            custom = {
                one.name: in_markup and one.grammar is not None for one in offered if one.is_custom
            }
            inputs = CustomInputs(custom) if custom else None
        reasoning = None
        if self.reasoning_parser is not None:
            begun = request.prompt.answer_prefix
            reasoning = self.reasoning_parser.behind(
                prompt, begun, may_be_inside=may_be_inside, tool_starts=starts
            )
            if tools is not None:
                tools.strays = self.reasoning_parser.tags()
        most_calls = None if request.calls_in_parallel else 1
        return OutputParser(reasoning, tools, inputs=inputs, most_calls=most_calls)


@lru_cache(maxsize=64)
def syntax_of(card: ModelCard) -> CardSyntax:
    """The families that models.yaml names; for `auto`, those that the checkpoint's response
    template describes, else those that the chat template shows, and `generic` where it shows no
    tools at all.
    """
    facts = card.facts
    own, refused = of_checkpoint(facts)
    own_name = f"{RESPONSE_TEMPLATE}{facts.response_template}"
    template = facts.chat_template or ""
    tools, reasoning = card.tool_parser, card.reasoning_parser
    if tools == AUTO:
        words = facts.tool_template or template
        # a template that shows no tools gets our words for them, and calls are written as these say
        if template and READS_TOOLS.search(words) is None:
            tools = GENERIC
        elif own and own.tools:
            tools = own_name
        else:
            tools = in_template(words, TOOL_FAMILIES) or NONE
    if reasoning == AUTO and own and own.reasoning:
        reasoning = own_name
    elif reasoning == AUTO:
        reasoning = in_template(template, REASONING_FAMILIES) or NONE
    reasoning_parser = None if reasoning == NONE else reasoning_family(reasoning)
    is_own, specials = reasoning == own_name, facts.special_tokens
    if is_own and reasoning_parser and _parts_of(reasoning_parser.starts, specials):
        # special tokens never stand in text
        reasoning_parser = type("Anywhere", (reasoning_parser,), {"is_anywhere": True})
    marks = () if reasoning_parser is None else reasoning_parser.marks()
    call_marks = () if tools == NONE else tool_family(tools).marks()
    return CardSyntax(
        tools=None if tools == NONE else tools,
        reasoning=None if reasoning == NONE else reasoning,
        reasoning_parser=reasoning_parser,
        refused=refused,
        special_tokens=facts.special_tokens,
        chat_specials=_parts_of(marks, facts.special_tokens),
        tool_specials=_parts_of((*call_marks, *marks), facts.special_tokens),
    )


def of_checkpoint(facts: ModelFacts) -> tuple[Described | None, str | None]:
    """What the checkpoint's response template describes, or why that is not used."""
    if facts.response_template is None:
        return None, None
    from proxy.language.syntax.response_template import Refused  # see families.of_checkpoint

    try:
        found = families.of_checkpoint(f"{RESPONSE_TEMPLATE}{facts.response_template}")
    except Refused as error:
        return None, str(error.args[0])
    for mark in found.unread:
        if not _parts_of((mark,), facts.special_tokens):
            return None, f"the mark {mark!r} is no special token"
    return found, None


def public_name(family: str | None) -> str | None:
    """The name as `/v1/models` shows it."""
    is_own = family is not None and family.startswith(RESPONSE_TEMPLATE)
    return RESPONSE_TEMPLATE.rstrip(":") if is_own else family


def _parts_of(marks: tuple[str, ...], specials: Mapping[int, bytes]) -> Mapping[int, bytes]:
    """The special tokens that are a mark of the syntax, or a part of one."""
    return {
        token: text
        for token, text in specials.items()
        if text and any(text.decode() in mark for mark in marks)
    }


def check_names(tools: str, reasoning: str) -> None:
    """Raises KeyError: no parser has one of the names."""
    if tools not in (AUTO, NONE):
        tool_family(tools)
    if reasoning not in (AUTO, NONE):
        reasoning_family(reasoning)


@lru_cache
def input_escapes(family: str | None) -> Escapes:
    """How calls of the family write a custom tool's input that must conform to a grammar."""
    syntax = None if family is None else tool_family(family).call_syntax
    return IN_JSON if syntax is None else syntax.input.escapes


def looks_for_calls(request: GenerationRequest) -> bool:
    return bool(request.tools) and request.tool_choice.mode is not ToolMode.NONE
