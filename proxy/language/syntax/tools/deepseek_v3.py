"""DeepSeek V3 and R1-0528: a type, the name, and the arguments in a JSON fence."""

from __future__ import annotations

from proxy.language.syntax.parsing.reader import Steps
from proxy.language.syntax.tools.call_syntax import CallSyntax
from proxy.language.syntax.tools.family import ToolFamily
from proxy.language.syntax.tools.section_calls import SectionCalls

_CALL_END = "<｜tool▁call▁end｜>"


class DeepSeekV3Parser(SectionCalls):
    """`<｜tool▁call▁begin｜>function<｜tool▁sep｜>f`, newline, ```` ```json{…}``` ````, end."""

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
