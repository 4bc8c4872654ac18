"""Qwen 3 Coder, Nemotron Nano 3: `<function=f><parameter=city>Paris</parameter></function>`."""

from __future__ import annotations

from proxy.language.syntax.tools.call_syntax import CallSyntax
from proxy.language.syntax.tools.family import ToolFamily
from proxy.language.syntax.tools.markup_arguments import can_be_elements, markup_arguments
from proxy.language.syntax.tools.markup_calls import Markup, MarkupCalls


class Qwen3CoderParser(MarkupCalls):
    """Each call in a `<tool_call>` of its own, which the model sometimes forgets."""

    sections = (("<tool_call>", "</tool_call>"),)
    call_begin = "<function="
    markup = Markup(
        name_end=">",
        key_begin="<parameter=",
        key_end=">",
        value_end="</parameter>",
        value_stops=("\n<parameter=", "\n</function>"),
        end="</function>",
        has_lines=True,
    )


QWEN3_CODER = ToolFamily(
    parser_type=Qwen3CoderParser,
    call_syntax=CallSyntax(
        begin="<tool_call>\n<function=",
        middle=">\n",
        arguments=markup_arguments(Qwen3CoderParser.markup),
        can_hold=can_be_elements,
        end="\n</function>\n</tool_call>",
        separator="\n",
        trigger="<tool_call>",
    ),
    template_marks=(("<function=", "<parameter="),),
)
