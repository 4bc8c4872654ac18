"""MiniMax M2: `<invoke name="f"><parameter name="city">Paris</parameter></invoke>` in a section."""

from __future__ import annotations

from triton_openai.proxy.syntax.tools.markup_calls import Markup, MarkupCalls


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
