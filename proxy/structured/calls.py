"""Whether the calls of a finished answer are those that were asked for."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from proxy.domain.completion import Answer
from proxy.domain.output import FinishReason
from proxy.domain.tools import Tool, ToolCall
from proxy.structured.blame import TOOLS
from proxy.structured.checks import schema_violation
from proxy.structured.tool_guides import schemas_of


@dataclass(frozen=True, slots=True, kw_only=True)
class CallCheck:
    """See checks.Check. `arguments`: what is wrong with a tool's, where they must conform."""

    wanted: str
    must_call: bool
    arguments: Mapping[str, Callable[[str], str | None]]
    field: str = TOOLS

    def of(self, answer: Answer) -> str | None:
        if answer.reason is FinishReason.LENGTH:
            return None
        if self.must_call and not answer.calls:
            return "it calls no tool"
        found = (self._violation(call) for call in answer.calls)
        return next((one for one in found if one is not None), None)

    def _violation(self, call: ToolCall) -> str | None:
        violation = self.arguments.get(call.name)
        told = None if violation is None else violation(call.arguments)
        return None if told is None else f"arguments of {call.name!r}: {told}"


def call_check(tools: Sequence[Tool], *, must_call: bool) -> CallCheck:
    """`tools`: those whose arguments must conform."""
    schemas = schemas_of(tools)
    listed = json.dumps(schemas, ensure_ascii=False)
    calls = "at least one call" if must_call else "calls"
    return CallCheck(
        wanted=f"{calls} whose arguments conform to these JSON Schemas: {listed}",
        must_call=must_call,
        arguments={name: schema_violation(schema) for name, schema in schemas.items()},
    )
