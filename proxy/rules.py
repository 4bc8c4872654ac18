"""What one answer is held to: by the engine's guide, by its parser, by checks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from proxy import parsers
from proxy.domain.completion import Answer
from proxy.domain.constraint import Constraint
from proxy.domain.errors import InvalidRequest
from proxy.domain.model import ModelCard
from proxy.domain.request import ChatPrompt, GenerationRequest
from proxy.domain.tools import ToolMode
from proxy.reasoning.parser import ReasoningParser
from proxy.structured import checks
from proxy.structured.calls import call_check
from proxy.structured.checks import Check
from proxy.structured.keywords import unenforced
from proxy.structured.reasoning_guides import after_reasoning, after_text
from proxy.structured.special_tokens import Untranslatable, in_tokens
from proxy.structured.tool_guides import ToolGuide, text_or_calls, tool_constraint


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """constraint: of the answer behind its reasoning. tool_family: of the parser of its calls.

    reasoning: what the model's reasoning looks like, where it may come first. begun: the first
    words of the answer, which the prompt ends with. is_of_calls: the constraint has calls in it.
    """

    constraint: Constraint | None = None
    check: Check | None = None
    reasoning: type[ReasoningParser] | None = None
    begun: str = ""
    tool_family: str | None = None
    is_of_calls: bool = False

    @property
    def closing(self) -> str:
        """What ends the reasoning in the model's place."""
        if self.reasoning is None:
            return ""
        return self.reasoning.end_of_thought() if self.is_of_calls else self.reasoning.closing

    def guide(
        self, card: ModelCard, prompt: str, *, has_thought: bool = False
    ) -> Constraint | None:
        """What the engine is given behind this prompt. has_thought: it ends with the reasoning."""
        constraint = self.constraint
        if constraint is None:
            return None
        if self.reasoning is not None and not has_thought:
            if not self.is_of_calls:
                constraint = after_text(constraint, self.reasoning.before_answer)
            is_thinking = self.reasoning.behind(prompt, self.begun).is_thinking
            begin = "" if is_thinking else self.reasoning.starts[0]
            constraint = after_reasoning(constraint, begin, self.reasoning.end_of_thought())
        is_ours = constraint is not self.constraint or self.is_of_calls
        return in_tokens(constraint, card.facts.special_tokens) if is_ours else constraint


def rules_of(request: GenerationRequest, card: ModelCard) -> Rules:
    """Raises InvalidRequest: the model cannot be held to it."""
    _check_kind(checks.guided(request.constraint, card), card)
    card = _as_it_can_be_guided(request, card)
    rules = Rules(
        constraint=checks.guided(request.constraint, card),
        check=checks.check_of(request.constraint, card),
    )
    if not isinstance(request.prompt, ChatPrompt):
        return rules
    families = parsers.of_card(card)
    if families.reasoning_family is not None:
        kind = families.reasoning_family.parser_type
        rules = replace(rules, reasoning=kind, begun=request.prompt.begun)
    if not parsers.looks_for_calls(request):
        return rules
    family = families.tools
    guide = _guide(request, card, family)
    if guide is not None:
        family = guide.family
    if family is None:
        raise InvalidRequest(
            f"The model {card.name!r} has no tool parser: its chat template shows none that is "
            "known. Name one as 'tool_parser' in models.yaml.",
            code="unsupported_parameter",
            param="tools",
        )
    return replace(
        rules,
        constraint=rules.constraint if guide is None else guide.constraint,
        check=_check(request, card, is_guided=guide is not None),
        tool_family=family,
        is_of_calls=guide is not None,
    )


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
    thinks = parsers.of_card(card).reasoning_family is not None
    if not thinks and not parsers.looks_for_calls(request):
        return card
    return replace(card, capabilities=card.capabilities - {"constraint"})


def _guide(request: GenerationRequest, card: ModelCard, family: str | None) -> ToolGuide | None:
    """None where the engine cannot, or the model is free."""
    if "constraint" not in card.capabilities:
        return None
    tools, choice = request.callable_tools, request.tool_choice
    in_parallel = request.calls_in_parallel
    if request.constraint is not None and choice.mode is ToolMode.AUTO:
        return text_or_calls(request.constraint, family, tools, in_parallel=in_parallel)
    guide = tool_constraint(family, tools, choice, in_parallel=in_parallel)
    if guide is None or guide.constraint.kind not in card.facts.guide_kinds:
        return None
    try:
        in_tokens(guide.constraint, card.facts.special_tokens)
    except Untranslatable:
        return None
    return guide


def _check(request: GenerationRequest, card: ModelCard, *, is_guided: bool) -> Check | None:
    """Of what the guide does not hold the answer to."""
    must_call = request.tool_choice.mode is ToolMode.REQUIRED
    tools = [tool for tool in request.callable_tools if must_call or tool.is_strict]
    if is_guided:
        tools = [tool for tool in tools if tool.is_strict and unenforced(tool.parameters or {})]
    found: list[Check] = []
    if tools:
        found.append(call_check(tools, must_call=must_call and not is_guided))
    if not must_call and (of_text := checks.check_of(request.constraint, card)) is not None:
        found.append(of_text)
    return found[0] if len(found) == 1 else _Both(found) if found else None


class _Both:
    """The text of an answer without calls, and the calls of one that has them."""

    def __init__(self, checks: Sequence[Check]) -> None:
        self._checks = checks
        self.field = checks[0].field
        self.wanted = ", or with ".join(check.wanted for check in checks)

    def of(self, answer: Answer) -> str | None:
        found = (check.of(answer) for check in self._checks)
        return next((one for one in found if one is not None), None)
