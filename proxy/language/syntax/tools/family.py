"""A family of tool-call syntax: one way of writing calls, which several models may share."""

from __future__ import annotations

from dataclasses import dataclass

from proxy.language.syntax.tools.call_syntax import CallSyntax
from proxy.language.syntax.tools.parser import NewId, ToolParser, Tools, openai_id


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFamily:
    """The parser that reads calls, and the syntax that a guide writes them in.

    call_syntax: None where no guide can hold a model to the family's calls. new_id: makes ids that
    the models' templates accept. template_marks: alternatives; a chat template that contains all
    marks of one of them belongs to the family.
    """

    parser_type: type[ToolParser]
    call_syntax: CallSyntax | None = None
    new_id: NewId = openai_id
    template_marks: tuple[tuple[str, ...], ...] = ()

    def make(
        self, tools: Tools | None = None, new_id: NewId | None = None, *, only_known: bool = False
    ) -> ToolParser:
        """A parser for one answer; see ToolParser for the arguments."""
        return self.parser_type(tools, new_id or self.new_id, only_known=only_known)
