"""Guides for tool calls: that there are some, to which tools, with which arguments.

Called by `guides`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from proxy.domain.constraint import Constraint
from proxy.domain.errors import ErrorCode, InvalidRequest
from proxy.domain.tools import Tool, ToolChoice, ToolMode
from proxy.language.structured.constraint_errors import TOOLS_FIELD
from proxy.language.structured.tag_formats import either, format_of, structural_tag
from proxy.language.syntax.tools.call_syntax import CallSyntax
from proxy.language.syntax.tools.families import family
from proxy.language.syntax.tools.json_families import OBJECT_LIST

FALLBACK_FAMILY = "json_list"  # for models whose own syntax a guide cannot enforce
NO_ARGUMENTS = {"type": "object", "properties": {}, "additionalProperties": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class CallGuide:
    """family: the name of the family whose parser reads the calls; not always the model's own."""

    constraint: Constraint
    family: str


def call_guide(
    family_name: str | None, tools: Sequence[Tool], choice: ToolChoice, *, in_parallel: bool
) -> CallGuide | None:
    """The guide for a request with tools; None where the model is free in what it writes.

    Under `required` an answer has calls and no text, written in the model's own syntax where a
    guide can enforce that, else as a list of JSON objects. Under `auto` with a strict tool, calls
    are held to their schemas as soon as they begin, where the syntax marks their begin.

    Args:
        family_name: the model's own family, None if it has none.
    """
    callable_tools = [one for one in tools if choice.allowed is None or one.name in choice.allowed]
    is_required = choice.mode is ToolMode.REQUIRED
    if choice.mode is ToolMode.NONE or not callable_tools:
        return None
    if not is_required and not any(tool.is_strict for tool in callable_tools):
        return None
    schemas = argument_schemas(callable_tools)
    own = _syntax_for(family_name, schemas)
    if is_required:
        syntax, reader = (OBJECT_LIST, FALLBACK_FAMILY) if own is None else (own, str(family_name))
        calls = syntax.calls_only(schemas, in_parallel=in_parallel)
        return CallGuide(constraint=structural_tag(calls, TOOLS_FIELD), family=reader)
    if own is None or not own.is_clear:
        return None
    text = own.calls_in_text(schemas, in_parallel=in_parallel)
    return CallGuide(constraint=structural_tag(text, TOOLS_FIELD), family=str(family_name))


def answer_or_calls(
    constraint: Constraint, family_name: str | None, tools: Sequence[Tool], *, in_parallel: bool
) -> CallGuide:
    """An answer that conforms to `constraint`, or calls in the model's own syntax.

    Raises:
        InvalidRequest: no guide can hold the model to its calls.
    """
    schemas = argument_schemas(tools)
    own = _syntax_for(family_name, schemas)
    if own is None:
        raise InvalidRequest(
            "A guide cannot combine the model's syntax of tool calls with "
            f"{constraint.field!r}: send either tools or a format.",
            code=ErrorCode.UNSUPPORTED_PARAMETER,
            param=constraint.field,
        )
    calls = own.calls_only(schemas, in_parallel=in_parallel)
    both = either(format_of(constraint), calls)
    return CallGuide(constraint=structural_tag(both, constraint.field), family=str(family_name))


def argument_schemas(tools: Sequence[Tool]) -> dict[str, dict[str, Any]]:
    """JSON Schemas of the arguments, by the tool's name."""
    return {tool.name: dict(tool.parameters or NO_ARGUMENTS) for tool in tools}


def _syntax_for(family_name: str | None, schemas: Mapping[str, Any]) -> CallSyntax | None:
    """The family's syntax, if a guide in it can enforce all of the schemas."""
    syntax = None if family_name is None else family(family_name).call_syntax
    return syntax if syntax is not None and all(map(syntax.can_hold, schemas.values())) else None
