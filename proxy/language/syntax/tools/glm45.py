"""GLM 4.5 to 4.7: `<tool_call>f<arg_key>city</arg_key><arg_value>Paris</arg_value></tool_call>`."""

from __future__ import annotations

from proxy.language.syntax.parsing.reader import Steps
from proxy.language.syntax.tools.call_syntax import CallSyntax
from proxy.language.syntax.tools.family import ToolFamily
from proxy.language.syntax.tools.markup_arguments import can_be_elements, markup_arguments
from proxy.language.syntax.tools.markup_calls import Markup, MarkupCalls


class Glm45Parser(MarkupCalls):
    """4.5 writes each part on a line of its own, 4.7 all in one."""

    call_begin = "<tool_call>"
    markup = Markup(
        name_end="",
        key_begin="<arg_key>",
        key_end="</arg_key>",
        value_begin="<arg_value>",
        value_end="</arg_value>",
        end="</tool_call>",
    )

    def _gap(self) -> Steps[None]:
        """Some models write the two characters `\\n` for a line break."""
        yield from super()._gap()
        while (yield from self._reader.accept("\\n")):
            yield from super()._gap()


GLM45 = ToolFamily(
    parser_type=Glm45Parser,
    call_syntax=CallSyntax(
        begin="<tool_call>",
        middle="\n",
        arguments=markup_arguments(Glm45Parser.markup),
        can_hold=can_be_elements,
        end="\n</tool_call>",
        separator="\n",
    ),
    template_marks=(("<arg_key>",),),
)
