"""Hermes, Qwen 2.5, Qwen 3, Granite 4: `<tool_call>{"name": …, "arguments": {…}}</tool_call>`."""

from __future__ import annotations

from proxy.language.syntax.tools.call_objects import CallObjects
from proxy.language.syntax.tools.call_syntax import CallSyntax
from proxy.language.syntax.tools.family import ToolFamily


class HermesParser(CallObjects):
    """One object between the tags; a list or several objects are accepted, too."""

    sections = (("<tool_call>", "</tool_call>"),)


HERMES = ToolFamily(
    parser_type=HermesParser,
    call_syntax=CallSyntax(
        begin='<tool_call>\n{"name": "',
        middle='", "arguments": ',
        end="}\n</tool_call>",
        separator="\n",
        trigger="<tool_call>",
    ),
    template_marks=(("<tool_call>",),),
)
