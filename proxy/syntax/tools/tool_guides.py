"""What holds a model to calls: that there are some, of which tools, with which arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from triton_openai.proxy.domain.constraint import Constraint
from triton_openai.proxy.domain.errors import ErrorCode, InvalidRequest
from triton_openai.proxy.domain.tools import Tool, ToolChoice, ToolMode
from triton_openai.proxy.structured.blame import TOOLS
from triton_openai.proxy.structured.structural_tags import Format, format_of, guide
from triton_openai.proxy.syntax.tools.tool_syntax import SYNTAXES

JSON_LIST = "json_list"
NO_ARGUMENTS = {"type": "object", "properties": {}, "additionalProperties": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolGuide:
    """family: of the parser that reads what comes; not always the model's own."""

    constraint: Constraint
    family: str


def tool_constraint(
    family: str | None, tools: Sequence[Tool], choice: ToolChoice, *, in_parallel: bool
) -> ToolGuide | None:
    """None where the model is free: it need not call, and no tool is strict.

    Calls that must be come alone, arguments conform to their schema, in the model's own syntax
    where it can be held to that, else as a list of JSON objects. Calls that may be are held to
    their schemas as soon as they begin, where the syntax can. `family`: the model's own.
    """
    called = [one for one in tools if choice.allowed is None or one.name in choice.allowed]
    is_needed = choice.mode is ToolMode.REQUIRED
    if choice.mode is ToolMode.NONE or not called:
        return None
    if not is_needed and not any(tool.is_strict for tool in called):
        return None
    schemas = schemas_of(called)
    can_hold = family is not None and _can_hold(family, schemas)
    if is_needed:
        reader = family if family is not None and can_hold else JSON_LIST
        return _guide(reader, SYNTAXES[reader].one_of(schemas, in_parallel=in_parallel))
    if family is None or not can_hold or not SYNTAXES[family].is_clear:
        return None
    return _guide(family, SYNTAXES[family].among_text(schemas, in_parallel=in_parallel))


def text_or_calls(
    constraint: Constraint, family: str | None, tools: Sequence[Tool], *, in_parallel: bool
) -> ToolGuide:
    """An answer that conforms to `constraint`, or calls in the model's own syntax.

    Raises:
        InvalidRequest: its calls cannot be held to a guide.
    """
    schemas = schemas_of(tools)
    if family is None or not _can_hold(family, schemas):
        raise InvalidRequest(
            f"The model's syntax of tool calls cannot be mixed with {constraint.field!r}: give "
            "tools or a format.",
            code=ErrorCode.UNSUPPORTED_PARAMETER,
            param=constraint.field,
        )
    calls = SYNTAXES[family].one_of(schemas, in_parallel=in_parallel)
    both: Format = {"type": "or", "elements": [format_of(constraint), calls]}
    return ToolGuide(constraint=guide(both, constraint.field), family=family)


def schemas_of(tools: Sequence[Tool]) -> dict[str, dict[str, Any]]:
    """Of the arguments, by name."""
    return {tool.name: dict(tool.parameters or NO_ARGUMENTS) for tool in tools}


def _can_hold(family: str, schemas: Mapping[str, Any]) -> bool:
    return family in SYNTAXES and all(map(SYNTAXES[family].can_hold, schemas.values()))


def _guide(family: str, tag: Format) -> ToolGuide:
    return ToolGuide(constraint=guide(tag, TOOLS), family=family)
