"""MiniMax M2: `<invoke name="f"><parameter name="city">Paris</parameter></invoke>` in a section."""

from __future__ import annotations

from proxy.language.syntax.tools.call_syntax import CallSyntax
from proxy.language.syntax.tools.family import ToolFamily
from proxy.language.syntax.tools.markup_arguments import can_be_elements, markup_arguments
from proxy.language.syntax.tools.markup_calls import Markup, MarkupCalls


class MiniMaxM2Parser(MarkupCalls):
    """Several calls in one `<minimax:tool_call>`."""

    sections = (("<minimax:tool_call>", "</minimax:tool_call>"),)
    call_begin = '<invoke name="'
    markup = Markup(
        name_end='">',
        key_begin='<parameter name="',
        key_end='">',
        value_end="</parameter>",
        end="</invoke>",
    )


MINIMAX_M2 = ToolFamily(
    parser_type=MiniMaxM2Parser,
    call_syntax=CallSyntax(
        head="<minimax:tool_call>\n",
        begin='<invoke name="',
        middle='">\n',
        arguments=markup_arguments(MiniMaxM2Parser.markup),
        can_hold=can_be_elements,
        end="\n</invoke>\n",
        foot="</minimax:tool_call>",
        trigger="<minimax:tool_call>",
    ),
    template_marks=(("<minimax:tool_call>",),),
)
