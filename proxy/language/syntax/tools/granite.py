"""Granite 3: `<|tool_call|>[{"name": …, "arguments": {…}}]`; 3.1 has `<tool_call>`."""

from __future__ import annotations

from proxy.language.syntax.tools.call_objects import CallObjects
from proxy.language.syntax.tools.call_syntax import object_list
from proxy.language.syntax.tools.family import ToolFamily


class GraniteParser(CallObjects):
    """A list after either tag."""

    sections = (("<|tool_call|>", ""), ("<tool_call>", "</tool_call>"))


GRANITE = ToolFamily(
    parser_type=GraniteParser,
    call_syntax=object_list("<|tool_call|>[", "]", trigger="<|tool_call|>"),
    template_marks=(("<|tool_call|>",),),
)
