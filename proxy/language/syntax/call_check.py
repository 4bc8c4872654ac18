"""The check that a finished answer contains the calls that the request requires."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from proxy.domain.completion import Answer
from proxy.domain.output import FinishReason
from proxy.domain.tools import Tool, ToolCall
from proxy.language.structured.checks import schema_violation
from proxy.language.structured.constraint_errors import TOOLS_FIELD
from proxy.language.syntax.tools.call_guides import argument_schemas


@dataclass(frozen=True, slots=True, kw_only=True)
class CallCheck:
    """A checks.Check. `schemas`: of the arguments that must conform, by the tool's name."""

    must_call: bool
    schemas: Mapping[str, Any]
    field: str = TOOLS_FIELD

    @property
    def requirement(self) -> str:
        listed = json.dumps(self.schemas, ensure_ascii=False)
        calls = "at least one call" if self.must_call else "calls"
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


def call_check(tools: Sequence[Tool], *, must_call: bool) -> CallCheck:
    """`tools`: those whose arguments must conform to their schemas."""
    return CallCheck(must_call=must_call, schemas=argument_schemas(tools))
