"""The parsers that a model's answers go through, and the parser for one answer.

Called by `generation`, and wherever a model's syntax matters: policy, prompting, the model list.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from proxy.domain.errors import ErrorCode, InvalidRequest
from proxy.domain.model import ModelCard
from proxy.domain.request import ChatPrompt, GenerationRequest
from proxy.domain.tools import ToolMode
from proxy.language.syntax.output_parser import OutputParser
from proxy.language.syntax.reasoning import families as reasoning_families
from proxy.language.syntax.reasoning.parser import ReasoningFamily
from proxy.language.syntax.tools import families as tool_families
from proxy.language.syntax.tools.family import ToolFamily
from proxy.language.syntax.tools.parser import ToolParser

AUTO, NONE = "auto", "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class CardParsers:
    """The names of a model's families; None where it has none."""

    tools: str | None
    reasoning: str | None

    @property
    def tool_family(self) -> ToolFamily | None:
        return None if self.tools is None else tool_families.family(self.tools)

    @property
    def reasoning_family(self) -> ReasoningFamily | None:
        return None if self.reasoning is None else reasoning_families.family(self.reasoning)


@lru_cache(maxsize=64)
def families_of(card: ModelCard) -> CardParsers:
    """Those that models.yaml names; for `auto`, those that the chat template shows."""
    template = card.facts.chat_template or ""
    tool_template = card.facts.tool_template or template
    return CardParsers(
        tools=_chosen(card.tool_parser, tool_families.from_template(tool_template)),
        reasoning=_chosen(card.reasoning_parser, reasoning_families.from_template(template)),
    )


def _chosen(named: str, found: str | None) -> str | None:
    if named == AUTO:
        return found
    return None if named == NONE else named


def check_names(tools: str, reasoning: str) -> None:
    """Raises KeyError: no parser has one of the names."""
    if tools not in (AUTO, NONE):
        tool_families.family(tools)
    if reasoning not in (AUTO, NONE):
        reasoning_families.family(reasoning)


def looks_for_calls(request: GenerationRequest) -> bool:
    return bool(request.tools) and request.tool_choice.mode is not ToolMode.NONE


def check_thinking_budget(request: GenerationRequest, card: ModelCard) -> None:
    """Raises InvalidRequest: without a reasoning parser the proxy cannot find the reasoning."""
    if request.thinking_budget is not None and families_of(card).reasoning is None:
        raise InvalidRequest(
            f"The model {card.name!r} has no reasoning parser, so there is nothing to limit.",
            code=ErrorCode.UNSUPPORTED_PARAMETER,
            param="thinking_token_budget",
        )


def parser_of(
    request: GenerationRequest, card: ModelCard, prompt: str, tool_family: str | None
) -> OutputParser | None:
    """The parser for one answer; None where the whole answer is text.

    Args:
        prompt: the rendered prompt.
        tool_family: the name of the family whose parser reads calls; None to read none.
    """
    if not isinstance(request.prompt, ChatPrompt):
        return None
    families = families_of(card)
    tools = None if tool_family is None else tool_families.family(tool_family)
    if tools is None and families.reasoning_family is None:
        return None
    reasoning = None
    if families.reasoning_family is not None:
        reasoning = families.reasoning_family.parser_type.behind(
            prompt,
            request.prompt.answer_prefix,
            tool_starts=() if tools is None else tools.parser_type.clear_starts(),
        )
    return OutputParser(
        reasoning,
        None if tools is None else _tool_parser(tools, request),
        most_calls=None if request.calls_in_parallel else 1,
    )


def _tool_parser(family: ToolFamily, request: GenerationRequest) -> ToolParser:
    tools = {tool.name: tool.parameters or {} for tool in request.callable_tools}
    return family.make(tools, only_known=request.tool_choice.allowed is not None)


def visible_special_tokens(request: GenerationRequest, card: ModelCard) -> Mapping[int, bytes]:
    """The special tokens that answers show as text: all if the caller wants them, otherwise those
    of the syntax, which the parsers of chat answers need.
    """
    if not request.skips_special_tokens:
        return card.facts.special_tokens
    if not isinstance(request.prompt, ChatPrompt):
        return {}
    return _syntax_specials(card, looks_for_calls(request))


@lru_cache(maxsize=128)
def _syntax_specials(card: ModelCard, with_tools: bool) -> Mapping[int, bytes]:
    families = families_of(card)
    marks: list[str] = []
    if with_tools and families.tool_family is not None:
        marks += families.tool_family.parser_type.marks()
    if families.reasoning_family is not None:
        marks += families.reasoning_family.parser_type.marks()
    return {
        token: text
        for token, text in card.facts.special_tokens.items()
        if _is_in(text.decode(), marks)
    }


def _is_in(text: str, marks: Iterable[str]) -> bool:
    """Whether the token is a mark of the syntax, or a part of one."""
    return bool(text) and any(text in mark for mark in marks)
