"""What an answer must be, and how it is read: its guides, its parser, its check. For `prepare`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from proxy.domain import plain_spans
from proxy.domain.completion import Answer
from proxy.domain.constraint import Constraint
from proxy.domain.errors import unsupported
from proxy.domain.model import ModelCard
from proxy.domain.request import ChatPrompt, GenerationRequest
from proxy.domain.sandbox import Sandbox
from proxy.domain.tools import ToolMode
from proxy.language.structured import checks
from proxy.language.structured.checks import Check
from proxy.language.syntax.guides import (
    NO_GUIDES,
    CallCheck,
    GuideBuilder,
    GuideOrder,
    Guides,
    argument_schemas,
)
from proxy.language.syntax.parsers import CardSyntax, looks_for_calls
from proxy.language.syntax.reasoning import ReasoningParser


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerFormat:
    """guides: what the engine enforces, for each state of the reasoning. check: of what the guides
    do not enforce; None where they enforce all.

    reasoning: the parser of the model's reasoning, where that may come first. prefix: the first
    words of the answer, which the prompt ends with. tool_family: of the parser of calls.
    """

    guides: Guides
    check: Check | None = None
    reasoning: type[ReasoningParser] | None = None
    prefix: str = ""
    tool_family: str | None = None

    @property
    def closing(self) -> str:
        """The text that ends the reasoning in the model's place."""
        if self.reasoning is None:
            return ""
        is_of_calls = self.guides.family is not None
        return self.reasoning.end_of_thought() if is_of_calls else self.reasoning.closing

    def guide(self, prompt: str, spans: bytes = b"") -> Constraint | None:
        """What the engine is given with this prompt, whose `spans` are as domain.plain_spans."""
        if self.reasoning is None or self.guides.answer is None:
            return self.guides.answer
        opening = plain_spans.opening(prompt, spans, self.prefix)
        if self.reasoning.behind(opening, self.prefix).is_thinking:
            return self.guides.in_reasoning
        return self.guides.before_reasoning


NO_FORMAT = AnswerFormat(guides=NO_GUIDES)


class AnswerFormats:
    """Makes the formats of requests; equal tools and constraints cost their guides once."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._builder = GuideBuilder(sandbox)

    async def answer_format(
        self, request: GenerationRequest, card: ModelCard, syntax: CardSyntax
    ) -> AnswerFormat:
        """
        Raises:
            InvalidRequest: the model cannot be held to what the request asks for, or its guides
                take too much time or memory.
            RateLimited: as the sandbox.
        """
        if request.constraint is None and not request.tools:
            return _unconstrained(request, syntax)
        _check_kind(checks.engine_constraint(request.constraint, card), card)
        card = _without_guides_it_cannot_take(request, card, syntax)
        guides = await self._builder.guides(_order(request, card, syntax), request.caller)
        return _constrained(request, card, syntax, guides)


def _unconstrained(request: GenerationRequest, syntax: CardSyntax) -> AnswerFormat:
    reasoning = syntax.reasoning_parser
    if reasoning is None or not isinstance(request.prompt, ChatPrompt):
        return NO_FORMAT
    prefix = request.prompt.answer_prefix
    return AnswerFormat(guides=NO_GUIDES, reasoning=reasoning, prefix=prefix)


def _constrained(
    request: GenerationRequest, card: ModelCard, syntax: CardSyntax, guides: Guides
) -> AnswerFormat:
    """`card`: without the capability of guides, where the engine cannot take these."""
    check = checks.check_of(request.constraint, card)
    found = replace(_unconstrained(request, syntax), guides=guides, check=check)
    if not isinstance(request.prompt, ChatPrompt) or not looks_for_calls(request):
        return found
    if guides.family is None:
        _refuse_grammars(request, card)
    family = guides.family or syntax.tools
    if family is None:
        raise unsupported(
            f"The model {card.name!r} has no tool parser: its chat template shows none that is "
            "known. Name one as 'tool_parser' in models.yaml.",
            param="tools",
        )
    check = _check(request, card, guides)
    return replace(found, check=check, tool_family=family)


def _order(request: GenerationRequest, card: ModelCard, syntax: CardSyntax) -> GuideOrder:
    """`card`: as in `_constrained`."""
    is_chat = isinstance(request.prompt, ChatPrompt)
    can_guide_calls = is_chat and "constraint" in card.capabilities
    has_calls = can_guide_calls and looks_for_calls(request) and _restricts_calls(request)
    return GuideOrder(
        constraint=checks.engine_constraint(request.constraint, card),
        tools=request.callable_tools if has_calls else (),
        must_call=request.tool_choice.mode is ToolMode.REQUIRED,
        in_parallel=request.calls_in_parallel,
        family=syntax.tools,
        reasoning=syntax.reasoning if is_chat else None,
        special_tokens=card.facts.special_tokens,
    )


def _restricts_calls(request: GenerationRequest) -> bool:
    """Whether the model may not call the tools as it likes."""
    must_call = request.tool_choice.mode is ToolMode.REQUIRED
    is_strict = any(tool.is_strict or tool.grammar for tool in request.callable_tools)
    return must_call or is_strict or request.constraint is not None


def _refuse_grammars(request: GenerationRequest, card: ModelCard) -> None:
    """Raises InvalidRequest: a custom tool has a grammar, to which no guide holds the model."""
    found = next((tool for tool in request.callable_tools if tool.grammar is not None), None)
    if found is None:
        return
    path = f"tools[{request.tools.index(found)}].custom.format"
    reason = "its engine does not accept the guide"
    if "constraint" in card.capabilities:
        reason = (
            "while it may answer in text, its syntax of tool calls cannot be held to these tools; "
            "it can with a 'tool_choice' of required, or one that names the tool"
        )
    raise unsupported(
        f"The model {card.name!r} cannot be held to the grammar in '{path}': {reason}. Without a "
        "guide, it can be called with a format of type 'text'.",
        param=path,
    )


def _check_kind(constraint: Constraint | None, card: ModelCard) -> None:
    """Raises InvalidRequest: the engine, or its operator, does not accept this kind of guide."""
    kinds = card.facts.guide_kinds
    if constraint is None or constraint.kind in kinds:
        return
    accepted = ", ".join(kind.value for kind in kinds) or "none at all"
    raise unsupported(
        f"The model {card.name!r} does not accept guides of the kind {constraint.kind.value!r}, "
        f"which '{constraint.field}' asks for. It accepts: {accepted}.",
        param=constraint.field,
    )


def _without_guides_it_cannot_take(
    request: GenerationRequest, card: ModelCard, syntax: CardSyntax
) -> ModelCard:
    """The card, without guides where the answer is checked instead: after reasoning, and for calls,
    a guide is a structural tag, which not every engine takes.
    """
    if card.facts.has_structural_tags or not isinstance(request.prompt, ChatPrompt):
        return card
    if syntax.reasoning is None and not looks_for_calls(request):
        return card
    return replace(card, capabilities=card.capabilities - {"constraint"})


def _check(request: GenerationRequest, card: ModelCard, guides: Guides) -> Check | None:
    """Of what the guides do not enforce."""
    must_call = request.tool_choice.mode is ToolMode.REQUIRED
    functions = [tool for tool in request.callable_tools if not tool.is_custom]
    tools = [tool for tool in functions if must_call or tool.is_strict]
    is_guided = guides.family is not None
    if is_guided:
        unheld = {tool.name for tool in tools if checks.loose(tool.parameters, card)}
        unheld.update(guides.unheld)
        loose = [tool for tool in tools if tool.unenforced or tool.name in unheld]
        tools = [tool for tool in loose if tool.is_strict]
    found: list[Check] = []
    misses_calls = must_call and not is_guided
    if tools or misses_calls:
        found.append(CallCheck(must_call=misses_calls, schemas=argument_schemas(tools)))
    if not must_call and (of_text := checks.check_of(request.constraint, card)) is not None:
        found.append(of_text)
    return found[0] if len(found) == 1 else _Both(tuple(found)) if found else None


@dataclass(frozen=True, slots=True)
class _Both:
    """Checks the text of an answer without calls, and the calls of one that has them."""

    checks: Sequence[Check]

    @property
    def field(self) -> str:
        return self.checks[0].field

    @property
    def requirement(self) -> str:
        return ", or with ".join(check.requirement for check in self.checks)

    def violation(self, answer: Answer) -> str | None:
        found = (check.violation(answer) for check in self.checks)
        return next((one for one in found if one is not None), None)
