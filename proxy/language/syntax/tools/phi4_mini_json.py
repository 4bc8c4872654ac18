"""Phi-4-mini: `functools[{"name": …, "arguments": {…}}]`."""

from __future__ import annotations

from proxy.language.syntax.parsing.reader import Steps
from proxy.language.syntax.tools.call_objects import CallObjects
from proxy.language.syntax.tools.call_syntax import object_list
from proxy.language.syntax.tools.family import ToolFamily


class Phi4MiniParser(CallObjects):
    """A list after the word, or between the tags that its template knows."""

    sections = (("functools", ""), ("<|tool_call|>", "<|/tool_call|>"))
    weak_starts = ("functools",)

    def _lead_in(self) -> Steps[None]:
        yield from self._reader.space()
        yield from self._reader.accept("functools")
        yield from self._reader.space()


PHI4_MINI_JSON = ToolFamily(
    parser_type=Phi4MiniParser,
    call_syntax=object_list("functools[", "]"),
    template_marks=(("functools[",), ("<|tool|>", "<|/tool|>")),
)
