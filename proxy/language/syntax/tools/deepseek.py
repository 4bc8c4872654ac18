"""The families of DeepSeek V3, V3.1 and V3.2."""

from __future__ import annotations

import re

from proxy.language.syntax.parsing.reader import Steps
from proxy.language.syntax.tools.call_syntax import CallSyntax
from proxy.language.syntax.tools.family import ToolFamily
from proxy.language.syntax.tools.markup_arguments import can_be_elements, markup_arguments
from proxy.language.syntax.tools.markup_calls import Markup, MarkupCalls
from proxy.language.syntax.tools.section_calls import SectionCalls

_CALL_END = "<｜tool▁call▁end｜>"


class DeepSeekV3Parser(SectionCalls):
    """DeepSeek V3 and R1-0528: a type, the name, and the arguments in a JSON fence.

    `<｜tool▁call▁begin｜>function<｜tool▁sep｜>f`, newline, ```` ```json{…}``` ````, end.
    """

    sections = (("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"),)
    call_begin = "<｜tool▁call▁begin｜>"
    inner_marks = ("<｜tool▁sep｜>", _CALL_END)

    def _call(self) -> Steps[None]:
        yield from self._head()
        yield from self._reader.space()
        is_fenced = yield from self._reader.accept("```json")
        yield from self._reader.space()
        yield from self._json_arguments("```" if is_fenced else _CALL_END)
        if is_fenced:
            yield from self._end("```")
        yield from self._end(_CALL_END)

    def _head(self) -> Steps[None]:
        """`function`, the separator, the name."""
        yield from self._reader.accept("function")
        yield from self._expect("<｜tool▁sep｜>")
        self._name = yield from self._whole_name()


DEEPSEEK_V3 = ToolFamily(
    parser_type=DeepSeekV3Parser,
    call_syntax=CallSyntax(
        head="<｜tool▁calls▁begin｜>",
        begin="<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
        middle="\n```json\n",
        end="\n```<｜tool▁call▁end｜>",
        separator="\n",
        foot="<｜tool▁calls▁end｜>",
    ),
    template_marks=(("<｜tool▁call▁begin｜>", "```json"),),
)


class DeepSeekV31Parser(DeepSeekV3Parser):
    """DeepSeek V3.1: `<｜tool▁call▁begin｜>f<｜tool▁sep｜>{…}<｜tool▁call▁end｜>` in a section.

    The name before the separator, the arguments bare after it.
    """

    call_begin = "<｜tool▁call▁begin｜>"

    def _head(self) -> Steps[None]:
        self._name = yield from self._whole_name()
        yield from self._expect("<｜tool▁sep｜>")


DEEPSEEK_V31 = ToolFamily(
    parser_type=DeepSeekV31Parser,
    call_syntax=CallSyntax(
        head="<｜tool▁calls▁begin｜>",
        begin="<｜tool▁call▁begin｜>",
        middle="<｜tool▁sep｜>",
        end="<｜tool▁call▁end｜>",
        foot="<｜tool▁calls▁end｜>",
    ),
    template_marks=(("<｜tool▁call▁begin｜>",),),
)


_WORD = re.compile(r"\w*")


class DeepSeekV32Parser(MarkupCalls):
    """DeepSeek V3.2 and V4: DSML, `<｜DSML｜parameter name="city" string="true">Paris</…>`.

    Each parameter says whether it is a string; if not, it is JSON.
    """

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
