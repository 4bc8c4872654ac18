"""Jamba: `<tool_calls>[{"name": …, "arguments": {…}}]</tool_calls>`."""

from __future__ import annotations

from proxy.language.syntax.tools.call_objects import CallObjects
from proxy.language.syntax.tools.call_syntax import object_list
from proxy.language.syntax.tools.family import ToolFamily


class JambaParser(CallObjects):
    """A list between the tags."""

    sections = (("<tool_calls>", "</tool_calls>"),)


JAMBA = ToolFamily(
    parser_type=JambaParser,
    call_syntax=object_list("<tool_calls>[", "]</tool_calls>", trigger="<tool_calls>"),
    template_marks=(("<tool_calls>",),),
)
