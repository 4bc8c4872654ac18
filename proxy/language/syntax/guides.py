"""Guides, which the engine enforces: a caller's constraint or tool calls, after the reasoning.

Built from a caller's schemas, so GuideBuilder builds them in a sandbox. Called by `generation`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from proxy.domain.completion import Answer
from proxy.domain.constraint import Constraint
from proxy.domain.errors import InvalidRequest, unsupported
from proxy.domain.output import FinishReason
from proxy.domain.sandbox import Sandbox, TooCostly
from proxy.domain.tools import Tool, ToolCall
from proxy.language.structured.checks import schema_violation
from proxy.language.structured.constraint_errors import TOOLS_FIELD, too_costly
from proxy.language.structured.escaped_grammar import IN_MARKUP
from proxy.language.structured.recent import Recent, fingerprint
from proxy.language.structured.schema import schemas
from proxy.language.structured.structural_tags import either, format_of, structural_tag
from proxy.language.syntax.call_syntax import INPUT_SCHEMA
from proxy.language.syntax.families import reasoning_family, tool_family
from proxy.language.syntax.json_calls import JsonListParser
from proxy.language.syntax.special_tokens import InexpressibleTokens, with_token_ids

GUIDE_AT_MOST = 2_000_000  # characters
RECENT_BYTES = 32_000_000
_BYTES_PER_CHARACTER = 4  # at most

FALLBACK_FAMILY = "json_list"  # for models whose own syntax a guide cannot enforce
NO_ARGUMENTS = {"type": "object", "properties": {}, "additionalProperties": False}

Key = tuple[object, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GuideOrder:
    """All that guides depend on.

    constraint: the caller's, where the engine enforces it. tools: those that the model may call,
    if it is not free in how it calls them. must_call: it must call one. family: the name of the
    model's tool family. reasoning: of its family of reasoning; None where none comes before the
    answer.
    """

    constraint: Constraint | None
    tools: tuple[Tool, ...] = ()
    must_call: bool
    in_parallel: bool
    family: str | None
    reasoning: str | None
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
    calls, where calls are guided. unheld: the names of strict tools with a `format` that the
    family's bare strings do not hold.
    """

    answer: Constraint | None
    in_reasoning: Constraint | None
    before_reasoning: Constraint | None
    family: str | None = None
    unheld: frozenset[str] = frozenset()

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
    calls, family = _calls(order) if order.tools else (None, None)
    constraint = calls or order.constraint
    if constraint is None:
        return NO_GUIDES
    answer = _with_token_ids(constraint, order) if calls else constraint
    inside = before = answer
    if order.reasoning is not None:
        reasoning = reasoning_family(order.reasoning)
        following = reasoning.answer(constraint, is_calls=calls is not None)
        inside = _with_token_ids(reasoning.in_reasoning(following), order)
        before = _with_token_ids(reasoning.before_reasoning(following), order)
    found = Guides(
        answer=answer,
        in_reasoning=inside,
        before_reasoning=before,
        family=family,
        unheld=_unheld(order, family),
    )
    if found.size > 3 * GUIDE_AT_MOST:
        raise InvalidRequest(
            f"Invalid value for '{constraint.field}': as a grammar it has more than "
            f"{GUIDE_AT_MOST} characters; make it smaller.",
            param=constraint.field,
        )
    return found


def _calls(order: GuideOrder) -> tuple[Constraint | None, str | None]:
    """The guide for calls, and the family whose parser reads them; None where the model is free in
    its calls, or the engine cannot enforce them.

    If the model must call, an answer has calls and no text, written in the model's own syntax where
    a guide can enforce that, else as a list of JSON objects. With a constraint, an answer conforms
    to it or has only calls. Otherwise calls are held to their schemas as soon as they begin, where
    the syntax marks their begin.

    Raises:
        InvalidRequest: the guide must have calls next to a constraint, and cannot.
    """
    grammars = {tool.name: tool.grammar for tool in order.tools if tool.grammar is not None}
    schemas = {**argument_schemas(order.tools), **grammars}
    own = None if order.family is None else tool_family(order.family).call_syntax
    if own is not None:
        beyond = [
            tool
            for tool in order.tools
            if not tool.is_custom and not own.can_hold(schemas[tool.name])
        ]
        # Where only a grammar must hold, functions that cannot be held stay free.
        are_free = grammars and not order.must_call and not any(one.is_strict for one in beyond)
        own = own if not beyond or are_free else None
    constraint, family = order.constraint, order.family
    if constraint is not None and not order.must_call:
        if own is None:
            raise unsupported(
                "A guide cannot combine the model's syntax of tool calls with "
                f"{constraint.field!r}: send either tools or a format.",
                param=constraint.field,
            )
        calls = own.calls_only(schemas, in_parallel=order.in_parallel)
        return structural_tag(either(format_of(constraint), calls), constraint.field), family
    if order.must_call:
        if own is None:
            own, family = JsonListParser.call_syntax, FALLBACK_FAMILY
        calls = own.calls_only(schemas, in_parallel=order.in_parallel)
    elif own is None or not own.is_clear:
        return None, None
    else:
        calls = own.calls_in_text(schemas, in_parallel=order.in_parallel)
    guide = structural_tag(calls, TOOLS_FIELD)
    try:
        with_token_ids(guide, order.special_tokens)
    except InexpressibleTokens:
        return None, None
    return guide, family


def _unheld(order: GuideOrder, family: str | None) -> frozenset[str]:
    syntax = None if family is None else tool_family(family).call_syntax
    if syntax is None or syntax.input.escapes is not IN_MARKUP:
        return frozenset()
    strict = {tool.name: tool.parameters for tool in order.tools if tool.is_strict}
    return frozenset(
        name for name, schema in strict.items() if any("format" in one for one in schemas(schema))
    )


def _with_token_ids(constraint: Constraint, order: GuideOrder) -> Constraint:
    try:
        return with_token_ids(constraint, order.special_tokens)
    except InexpressibleTokens as error:
        raise unsupported(
            f"Invalid value for '{constraint.field}': {error}, which no guide for this model can "
            "express.",
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
        [
            (one.name, one.is_strict, one.parameters and dict(one.parameters), one.is_custom)
            for one in order.tools
        ],
        [
            one.grammar and (one.name, one.grammar.syntax, one.grammar.definition)
            for one in order.tools
        ],
        list(order.special_tokens.items()),
        constraint and (constraint.kind.value, constraint.text, constraint.field),
    ]
    return fingerprint(parts), order.must_call, order.in_parallel, order.family, order.reasoning


def argument_schemas(tools: Sequence[Tool]) -> dict[str, dict[str, Any]]:
    """JSON Schemas of the arguments, by the tool's name."""
    return {
        tool.name: INPUT_SCHEMA if tool.is_custom else dict(tool.parameters or NO_ARGUMENTS)
        for tool in tools
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class CallCheck:
    """A checks.Check. `schemas`: of the arguments that must conform, by the tool's name."""

    must_call: bool
    schemas: Mapping[str, Any]
    field: str = TOOLS_FIELD

    @property
    def requirement(self) -> str:
        calls = "at least one call" if self.must_call else "calls"
        if not self.schemas:
            return calls
        listed = json.dumps(self.schemas, ensure_ascii=False)
        return f"{calls} whose arguments conform to these JSON Schemas: {listed}"

    def violation(self, answer: Answer) -> str | None:
        if answer.reason is FinishReason.LENGTH:
            return None
        if self.must_call and not answer.calls:
            return "it calls no tool"
        found = (self._violation(call) for call in answer.calls)
        return next((one for one in found if one is not None), None)

    def _violation(self, call: ToolCall) -> str | None:
        if call.name not in self.schemas:
            return None
        violation = schema_violation(self.schemas[call.name], call.arguments)
        return None if violation is None else f"arguments of {call.name!r}: {violation}"
