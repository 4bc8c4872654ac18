"""Whether the calls of a finished answer are those that were asked for."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from triton_openai.proxy.domain.completion import Answer
from triton_openai.proxy.domain.output import FinishReason
from triton_openai.proxy.domain.tools import Tool, ToolCall
from triton_openai.proxy.structured.blame import TOOLS
from triton_openai.proxy.structured.checks import schema_violation
from triton_openai.proxy.syntax.tools.tool_guides import schemas_of


@dataclass(frozen=True, slots=True, kw_only=True)
class CallCheck:
    """See checks.Check. `schemas`: by tool, of the arguments that must conform."""

    must_call: bool
    schemas: Mapping[str, Any]
    field: str = TOOLS

    @property
    def wanted(self) -> str:
        listed = json.dumps(self.schemas, ensure_ascii=False)
        calls = "at least one call" if self.must_call else "calls"
        return f"{calls} whose arguments conform to these JSON Schemas: {listed}"

    def of(self, answer: Answer) -> str | None:
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


def call_check(tools: Sequence[Tool], *, must_call: bool) -> CallCheck:
    """`tools`: those whose arguments must conform."""
    return CallCheck(must_call=must_call, schemas=schemas_of(tools))
