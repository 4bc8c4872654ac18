"""The families whose calls are XML-like elements: GLM 4.5, Qwen3-Coder, MiniMax M2."""

from __future__ import annotations

from proxy.language.syntax.parsing.reader import Steps
from proxy.language.syntax.tools.call_syntax import CallSyntax
from proxy.language.syntax.tools.family import ToolFamily
from proxy.language.syntax.tools.markup_arguments import can_be_elements, markup_arguments
from proxy.language.syntax.tools.markup_calls import Markup, MarkupCalls


class Glm45Parser(MarkupCalls):
    """GLM 4.5: `<tool_call>f<arg_key>city</arg_key><arg_value>Paris</arg_value></tool_call>`.

    4.5 writes each part on a line of its own, 4.7 all in one.
    """

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


class Qwen3CoderParser(MarkupCalls):
    """Qwen 3 Coder, Nemotron Nano 3: `<function=f><parameter=city>Paris</parameter></function>`.

    Each call in a `<tool_call>` of its own, which the model sometimes forgets.
    """

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


class MiniMaxM2Parser(MarkupCalls):
    """MiniMax M2: `<invoke name="f"><parameter name="city">Paris</parameter></invoke>`.

    Several calls in one `<minimax:tool_call>`.
    """

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
