"""What the engine is given to hold an answer to: a caller's constraint, calls, and what stands
before them. Built from a caller's schemas, so this is for a sandbox; called by `guide_builder`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from triton_openai.proxy.domain.constraint import Constraint
from triton_openai.proxy.domain.errors import ErrorCode, InvalidRequest
from triton_openai.proxy.domain.tools import Tool, ToolChoice, ToolMode
from triton_openai.proxy.syntax.reasoning.reasoning_guides import after_reasoning, after_text
from triton_openai.proxy.syntax.special_tokens import Untranslatable, in_tokens
from triton_openai.proxy.syntax.tools.tool_guides import ToolGuide, text_or_calls, tool_constraint

GUIDE_AT_MOST = 2_000_000  # characters


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningMarks:
    """before_answer: what stands between the reasoning and an answer that is text."""

    begin: str
    end: str
    before_answer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GuideOrder:
    """All that guides depend on. constraint: what the engine is to be given of the caller's.

    family: the model's own syntax of calls. tools: those that may be called, if guides depend on
    them. reasoning: None where none comes before the answer.
    """

    constraint: Constraint | None
    tools: tuple[Tool, ...] = ()
    choice: ToolChoice
    in_parallel: bool
    family: str | None
    reasoning: ReasoningMarks | None
    special_tokens: Mapping[int, bytes]

    @property
    def is_plain(self) -> bool:
        """Whether the engine gets the caller's constraint as it is, or nothing."""
        return not self.tools and (self.constraint is None or self.reasoning is None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Guides:
    """One guide for each state of the reasoning: over (or never there), begun by the prompt, still
    to begin. family: of the parser of calls, where calls are guided.
    """

    answer: Constraint | None
    in_reasoning: Constraint | None
    before_reasoning: Constraint | None
    family: str | None = None

    @property
    def size(self) -> int:
        """In characters."""
        guides = (self.answer, self.in_reasoning, self.before_reasoning)
        return sum(len(one.text) for one in guides if one is not None)


NO_GUIDES = Guides(answer=None, in_reasoning=None, before_reasoning=None)


def guides_of(order: GuideOrder) -> Guides:
    """
    Raises:
        InvalidRequest: there is no guide for what is asked for, or it would be too large.
    """
    calls = _of_calls(order)
    constraint = order.constraint if calls is None else calls.constraint
    if constraint is None:
        return NO_GUIDES
    answer = constraint if calls is None else _named(constraint, order)
    inside = before = answer
    if (marks := order.reasoning) is not None:
        said = constraint if calls else after_text(constraint, marks.before_answer)
        inside = _named(after_reasoning(said, "", marks.end), order)
        before = _named(after_reasoning(said, marks.begin, marks.end), order)
    found = Guides(
        answer=answer,
        in_reasoning=inside,
        before_reasoning=before,
        family=None if calls is None else calls.family,
    )
    if found.size > 3 * GUIDE_AT_MOST:
        raise InvalidRequest(
            f"Invalid value for '{constraint.field}': what the answer is to conform to has more "
            f"than {GUIDE_AT_MOST} characters as a grammar; make it smaller.",
            code=ErrorCode.INVALID_PARAMETER,
            param=constraint.field,
        )
    return found


def _of_calls(order: GuideOrder) -> ToolGuide | None:
    """None where the engine cannot, or the model is free."""
    if not order.tools:
        return None
    if order.constraint is not None and order.choice.mode is ToolMode.AUTO:
        return text_or_calls(
            order.constraint, order.family, order.tools, in_parallel=order.in_parallel
        )
    guide = tool_constraint(order.family, order.tools, order.choice, in_parallel=order.in_parallel)
    if guide is None:
        return None
    try:
        in_tokens(guide.constraint, order.special_tokens)
    except Untranslatable:
        return None
    return guide


def _named(constraint: Constraint, order: GuideOrder) -> Constraint:
    """With special tokens by their ids."""
    try:
        return in_tokens(constraint, order.special_tokens)
    except Untranslatable as error:
        raise InvalidRequest(
            f"Invalid value for '{constraint.field}': {error}, which this model cannot be held to.",
            code=ErrorCode.UNSUPPORTED_PARAMETER,
            param=constraint.field,
        ) from error
