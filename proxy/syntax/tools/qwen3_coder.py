"""Qwen 3 Coder, Nemotron Nano 3: `<function=f><parameter=city>Paris</parameter></function>`."""

from __future__ import annotations

from triton_openai.proxy.syntax.tools.markup_calls import Markup, MarkupCalls


class Qwen3CoderParser(MarkupCalls):
    """Each call in a `<tool_call>` of its own, which the model forgets at times."""

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
