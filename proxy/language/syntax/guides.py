"""Guides, which the engine enforces: a caller's constraint or tool calls, after the reasoning.

Built from a caller's schemas, so GuideBuilder builds them in a sandbox. Called by `generation`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from proxy.domain.constraint import Constraint
from proxy.domain.errors import ErrorCode, InvalidRequest
from proxy.domain.sandbox import Sandbox, TooCostly
from proxy.domain.tools import Tool, ToolChoice, ToolMode
from proxy.language.structured.constraint_errors import TOOLS_FIELD, too_costly
from proxy.language.structured.recent import Recent, fingerprint
from proxy.language.syntax.reasoning.reasoning_syntax import ReasoningSyntax
from proxy.language.syntax.special_tokens import InexpressibleTokens, with_token_ids
from proxy.language.syntax.tools.call_guides import CallGuide, answer_or_calls, call_guide

GUIDE_AT_MOST = 2_000_000  # characters
RECENT_BYTES = 32_000_000
_BYTES_PER_CHARACTER = 4  # at most

Key = tuple[object, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GuideOrder:
    """All that guides depend on.

    constraint: the caller's, where the engine enforces it. tools: those that the model may call,
    if guides depend on them. family: the name of the model's tool family. reasoning: None where
    none comes before the answer.
    """

    constraint: Constraint | None
    tools: tuple[Tool, ...] = ()
    choice: ToolChoice
    in_parallel: bool
    family: str | None
    reasoning: ReasoningSyntax | None
    special_tokens: Mapping[int, bytes]

    @property
    def is_plain(self) -> bool:
        """Whether the engine gets the caller's constraint unchanged, or none."""
        return not self.tools and (self.constraint is None or self.reasoning is None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Guides:
    """One guide for each state of the reasoning.

    answer: the reasoning is over, or there is none. in_reasoning: the prompt has begun it.
    before_reasoning: the model may begin it. family: the name of the family whose parser reads the
    calls, where calls are guided.
    """

    answer: Constraint | None
    in_reasoning: Constraint | None
    before_reasoning: Constraint | None
    family: str | None = None

    @property
    def size(self) -> int:
        """The length of its guides' texts together, in characters."""
        guides = (self.answer, self.in_reasoning, self.before_reasoning)
        return sum(len(one.text) for one in guides if one is not None)


NO_GUIDES = Guides(answer=None, in_reasoning=None, before_reasoning=None)


def guides_of(order: GuideOrder) -> Guides:
    """
    Raises:
        InvalidRequest: no guide can enforce what the order asks for, or it would be too large.
    """
    calls = _call_guide(order)
    constraint = order.constraint if calls is None else calls.constraint
    if constraint is None:
        return NO_GUIDES
    answer = constraint if calls is None else _with_token_ids(constraint, order)
    inside = before = answer
    if (reasoning := order.reasoning) is not None:
        following = constraint if calls else reasoning.as_text(constraint)
        inside = _with_token_ids(reasoning.in_reasoning(following), order)
        before = _with_token_ids(reasoning.before_reasoning(following), order)
    found = Guides(
        answer=answer,
        in_reasoning=inside,
        before_reasoning=before,
        family=None if calls is None else calls.family,
    )
    if found.size > 3 * GUIDE_AT_MOST:
        raise InvalidRequest(
            f"Invalid value for '{constraint.field}': as a grammar it has more than "
            f"{GUIDE_AT_MOST} characters; make it smaller.",
            code=ErrorCode.INVALID_PARAMETER,
            param=constraint.field,
        )
    return found


def _call_guide(order: GuideOrder) -> CallGuide | None:
    """None where the model is free in its calls, or the engine cannot enforce them."""
    if not order.tools:
        return None
    if order.constraint is not None and order.choice.mode is ToolMode.AUTO:
        return answer_or_calls(
            order.constraint, order.family, order.tools, in_parallel=order.in_parallel
        )
    guide = call_guide(order.family, order.tools, order.choice, in_parallel=order.in_parallel)
    if guide is None:
        return None
    try:
        with_token_ids(guide.constraint, order.special_tokens)
    except InexpressibleTokens:
        return None
    return guide


def _with_token_ids(constraint: Constraint, order: GuideOrder) -> Constraint:
    try:
        return with_token_ids(constraint, order.special_tokens)
    except InexpressibleTokens as error:
        raise InvalidRequest(
            f"Invalid value for '{constraint.field}': {error}, which no guide for this model can "
            "express.",
            code=ErrorCode.UNSUPPORTED_PARAMETER,
            param=constraint.field,
        ) from error


class GuideBuilder:
    """Builds guides in a sandbox, and those of equal orders only once."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._recent: Recent[Key, Guides] = Recent(
            RECENT_BYTES, lambda guides: _BYTES_PER_CHARACTER * guides.size
        )

    async def guides(self, order: GuideOrder, caller: str) -> Guides:
        """Like `guides_of`.

        Raises:
            InvalidRequest: also where building them takes too much time or memory.
            RateLimited: the caller has too many calls waiting for the sandbox.
        """
        if order.is_plain:
            return guides_of(order)
        key = _key(order)
        found = self._recent.get(key)
        if found is None:
            try:
                found = await self._sandbox.run(caller, guides_of, order)
            except TooCostly as error:
                field = TOOLS_FIELD if order.constraint is None else order.constraint.field
                raise too_costly(field, error, is_schema=False) from error
            self._recent.keep(key, found)
        return found


def _key(order: GuideOrder) -> Key:
    """Orders with equal keys have equal guides."""
    constraint = order.constraint
    parts = [
        [(one.name, one.is_strict, one.parameters and dict(one.parameters)) for one in order.tools],
        list(order.special_tokens.items()),
        constraint and (constraint.kind.value, constraint.text, constraint.field),
    ]
    return fingerprint(parts), order.choice, order.in_parallel, order.family, order.reasoning
