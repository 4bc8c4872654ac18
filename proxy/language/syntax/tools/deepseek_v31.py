"""DeepSeek V3.1: `<｜tool▁call▁begin｜>f<｜tool▁sep｜>{…}<｜tool▁call▁end｜>` in a section."""

from __future__ import annotations

from proxy.language.syntax.parsing.reader import Steps
from proxy.language.syntax.tools.call_syntax import CallSyntax
from proxy.language.syntax.tools.deepseek_v3 import DeepSeekV3Parser
from proxy.language.syntax.tools.family import ToolFamily


class DeepSeekV31Parser(DeepSeekV3Parser):
    """The name before the separator, the arguments bare after it."""

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
