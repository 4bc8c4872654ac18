"""DeepSeek V3.2 and V4: DSML, `<｜DSML｜parameter name="city" string="true">Paris</…>`."""

from __future__ import annotations

import re

from proxy.language.syntax.parsing.reader import Steps
from proxy.language.syntax.tools.call_syntax import CallSyntax
from proxy.language.syntax.tools.family import ToolFamily
from proxy.language.syntax.tools.markup_arguments import can_be_elements, markup_arguments
from proxy.language.syntax.tools.markup_calls import Markup, MarkupCalls

_WORD = re.compile(r"\w*")


class DeepSeekV32Parser(MarkupCalls):
    """Each parameter says whether it is a string; if not, it is JSON."""

    sections = (
        ("<｜DSML｜function_calls>", "</｜DSML｜function_calls>"),
        ("<｜DSML｜tool_calls>", "</｜DSML｜tool_calls>"),
    )
    call_begin = '<｜DSML｜invoke name="'
    markup = Markup(
        name_end='">',
        key_begin='<｜DSML｜parameter name="',
        key_end='"',
        value_end="</｜DSML｜parameter>",
        end="</｜DSML｜invoke>",
    )
    _is_string = ""

    def _key(self) -> Steps[str]:
        key = yield from super()._key()
        yield from self._reader.space()
        self._is_string = ""
        if (yield from self._reader.accept('string="')):
            self._is_string = yield from self._reader.word(_WORD)
            yield from self._expect('"')
        yield from self._expect(">", 'string="')
        return key

    def _types(self, key: str) -> frozenset[str]:
        if self._is_string == "true":
            return frozenset({"string"})
        types = super()._types(key)
        return types - {"string"} or types if self._is_string == "false" else types


DEEPSEEK_V32 = ToolFamily(
    parser_type=DeepSeekV32Parser,
    call_syntax=CallSyntax(
        head="<｜DSML｜function_calls>\n",
        begin='<｜DSML｜invoke name="',
        middle='">\n',
        arguments=markup_arguments(DeepSeekV32Parser.markup, says_type=True),
        can_hold=can_be_elements,
        end="\n</｜DSML｜invoke>\n",
        foot="</｜DSML｜function_calls>",
        trigger="<｜DSML｜function_calls>",
    ),
    template_marks=(("｜DSML｜",),),
)
