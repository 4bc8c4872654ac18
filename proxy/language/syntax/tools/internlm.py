"""InternLM 2: `<|action_start|><|plugin|>{"name": …, "parameters": {…}}<|action_end|>`."""

from __future__ import annotations

from proxy.language.syntax.parsing.reader import Steps
from proxy.language.syntax.tools.call_objects import CallObjects
from proxy.language.syntax.tools.call_syntax import CallSyntax
from proxy.language.syntax.tools.family import ToolFamily


class InternLMParser(CallObjects):
    """One object an action."""

    sections = (("<|action_start|>", "<|action_end|>"),)
    inner_marks = ("<|plugin|>",)

    def _lead_in(self) -> Steps[None]:
        yield from self._reader.space()
        yield from self._reader.accept("<|plugin|>")
        yield from self._reader.space()


INTERNLM = ToolFamily(
    parser_type=InternLMParser,
    call_syntax=CallSyntax(
        begin='<|action_start|><|plugin|>\n{"name": "',
        middle='", "parameters": ',
        end="}<|action_end|>",
        separator="\n",
        trigger="<|action_start|>",
    ),
    template_marks=(("<|action_start|>",),),
)
