"""What one answer is held to: by the engine's guide, by its parser, by checks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from triton_openai.proxy.domain.completion import Answer
from triton_openai.proxy.domain.constraint import Constraint
from triton_openai.proxy.domain.errors import InvalidRequest
from triton_openai.proxy.domain.model import ModelCard
from triton_openai.proxy.domain.request import ChatPrompt, GenerationRequest
from triton_openai.proxy.domain.sandbox import Sandbox
from triton_openai.proxy.domain.tools import ToolMode
from triton_openai.proxy.structured import checks
from triton_openai.proxy.structured.checks import Check
from triton_openai.proxy.syntax import parsers
from triton_openai.proxy.syntax.call_check import call_check
from triton_openai.proxy.syntax.guide_builder import GuideBuilder
from triton_openai.proxy.syntax.guides import GuideOrder, Guides, guides_of
from triton_openai.proxy.syntax.reasoning.parser import ReasoningParser


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """guides: of the answer, for each state of the reasoning. check: of what they do not enforce.

    reasoning: what the model's reasoning looks like, where it may come first. begun: the first
    words of the answer, which the prompt ends with. tool_family: of the parser of its calls.
    """

    guides: Guides
    check: Check | None = None
    reasoning: type[ReasoningParser] | None = None
    begun: str = ""
    tool_family: str | None = None

    @property
    def closing(self) -> str:
        """What ends the reasoning in the model's place."""
        if self.reasoning is None:
            return ""
        is_of_calls = self.guides.family is not None
        return self.reasoning.end_of_thought() if is_of_calls else self.reasoning.closing

    def guide(self, prompt: str, *, has_thought: bool = False) -> Constraint | None:
        """What the engine is given behind this prompt. has_thought: it ends with the reasoning."""
        if self.reasoning is None or has_thought or self.guides.answer is None:
            return self.guides.answer
        if self.reasoning.behind(prompt, self.begun).is_thinking:
            return self.guides.in_reasoning
        return self.guides.before_reasoning


class RuleBook:
    """Makes the rules of requests; equal tools and constraints cost their guides once."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._builder = GuideBuilder(sandbox)

    async def rules(self, request: GenerationRequest, card: ModelCard) -> Rules:
        """As `rules_of`.

        Raises:
            InvalidRequest: also where the guides take too much time or memory.
            RateLimited: as the sandbox.
        """
        _check_kind(checks.engine_constraint(request.constraint, card), card)
        card = _as_it_can_be_guided(request, card)
        guides = await self._builder.guides(_order(request, card), request.caller)
        return _rules(request, card, guides)


def rules_of(request: GenerationRequest, card: ModelCard) -> Rules:
    """Raises InvalidRequest: the model cannot be held to it."""
    _check_kind(checks.engine_constraint(request.constraint, card), card)
    card = _as_it_can_be_guided(request, card)
    return _rules(request, card, guides_of(_order(request, card)))


def _rules(request: GenerationRequest, card: ModelCard, guides: Guides) -> Rules:
    """`card`: as it can be guided."""
    rules = Rules(guides=guides, check=checks.check_of(request.constraint, card))
    if not isinstance(request.prompt, ChatPrompt):
        return rules
    families = parsers.families_of(card)
    if families.reasoning_family is not None:
        kind = families.reasoning_family.parser_type
        rules = replace(rules, reasoning=kind, begun=request.prompt.begun)
    if not parsers.looks_for_calls(request):
        return rules
    family = guides.family or families.tools
    if family is None:
        raise InvalidRequest(
            f"The model {card.name!r} has no tool parser: its chat template shows none that is "
            "known. Name one as 'tool_parser' in models.yaml.",
            code="unsupported_parameter",
            param="tools",
        )
    check = _check(request, card, is_guided=guides.family is not None)
    return replace(rules, check=check, tool_family=family)


def _order(request: GenerationRequest, card: ModelCard) -> GuideOrder:
    """`card`: as it can be guided."""
    families, is_chat = parsers.families_of(card), isinstance(request.prompt, ChatPrompt)
    can_guide_calls = is_chat and "constraint" in card.capabilities
    has_calls = can_guide_calls and parsers.looks_for_calls(request) and _holds_calls(request)
    reasoning = families.reasoning_family if is_chat else None
    return GuideOrder(
        constraint=checks.engine_constraint(request.constraint, card),
        tools=request.callable_tools if has_calls else (),
        choice=request.tool_choice,
        in_parallel=request.calls_in_parallel,
        family=families.tools,
        reasoning=None if reasoning is None else reasoning.parser_type.syntax(),
        special_tokens=card.facts.special_tokens,
    )


def _holds_calls(request: GenerationRequest) -> bool:
    """Whether the model is not free to call the tools as it likes."""
    must_call = request.tool_choice.mode is ToolMode.REQUIRED
    is_strict = any(tool.is_strict for tool in request.callable_tools)
    return must_call or is_strict or request.constraint is not None


def _check_kind(constraint: Constraint | None, card: ModelCard) -> None:
    """Raises InvalidRequest: the engine, or its operator, does not accept this kind of guide."""
    kinds = card.facts.guide_kinds
    if constraint is None or constraint.kind in kinds:
        return
    accepted = ", ".join(kind.value for kind in kinds) or "none at all"
    raise InvalidRequest(
        f"The model {card.name!r} does not accept guides of the kind {constraint.kind.value!r}, "
        f"which '{constraint.field}' asks for. It accepts: {accepted}.",
        code="unsupported_parameter",
        param=constraint.field,
    )


def _as_it_can_be_guided(request: GenerationRequest, card: ModelCard) -> ModelCard:
    """Behind reasoning, and for calls, a guide is a structural tag: without them it is checked."""
    if card.facts.has_structural_tags or not isinstance(request.prompt, ChatPrompt):
        return card
    thinks = parsers.families_of(card).reasoning_family is not None
    if not thinks and not parsers.looks_for_calls(request):
        return card
    return replace(card, capabilities=card.capabilities - {"constraint"})


def _check(request: GenerationRequest, card: ModelCard, *, is_guided: bool) -> Check | None:
    """Of what the guide does not hold the answer to."""
    must_call = request.tool_choice.mode is ToolMode.REQUIRED
    tools = [tool for tool in request.callable_tools if must_call or tool.is_strict]
    if is_guided:
        tools = [tool for tool in tools if tool.is_strict and tool.unenforced]
    found: list[Check] = []
    if tools:
        found.append(call_check(tools, must_call=must_call and not is_guided))
    if not must_call and (of_text := checks.check_of(request.constraint, card)) is not None:
        found.append(of_text)
    return found[0] if len(found) == 1 else _Both(tuple(found)) if found else None


@dataclass(frozen=True, slots=True)
class _Both:
    """The text of an answer without calls, and the calls of one that has them."""

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
