"""Llama 3: `<|python_tag|>{"name": …, "parameters": {…}}`, often without the tag."""

from __future__ import annotations

from proxy.language.syntax.tools.bare_calls import BareCalls
from proxy.language.syntax.tools.call_objects import CallObjects
from proxy.language.syntax.tools.call_syntax import CallSyntax
from proxy.language.syntax.tools.family import ToolFamily


class Llama3JsonParser(BareCalls, CallObjects):
    """Reads calls that are JSON objects, separated by `; `."""

    sections = (("<|python_tag|>", ""),)


LLAMA3_JSON = ToolFamily(
    parser_type=Llama3JsonParser,
    call_syntax=CallSyntax(begin='{"name": "', middle='", "parameters": ', end="}", separator="; "),
    template_marks=(("<|python_tag|>",), ("Environment: ipython", '"parameters"')),
)
