"""Mistral: `[TOOL_CALLS] [{"name": …, "arguments": {…}}]`, from v11 on `[TOOL_CALLS]f[ARGS]{…}`."""

from __future__ import annotations

from proxy.language.syntax.parsing.reader import Steps
from proxy.language.syntax.tools.call_objects import CallObjects
from proxy.language.syntax.tools.call_syntax import CallSyntax
from proxy.language.syntax.tools.family import ToolFamily
from proxy.language.syntax.tools.ids import mistral_id
from proxy.language.syntax.tools.parser import NAME


class MistralParser(CallObjects):
    """Both forms; the newer repeats the tag before each call and may carry `[CALL_ID]id`."""

    sections = (("[TOOL_CALLS]", ""),)
    inner_marks = ("[CALL_ID]", "[ARGS]")

    def _first(self, start: str) -> Steps[bool]:
        yield from self._reader.accept(start)
        yield from self._reader.space()
        self._name = yield from self._whole_name()
        if not self._name:
            return (yield from super()._first(""))
        yield from self._head()
        yield from self._json_arguments()
        return False

    def _head(self) -> Steps[None]:
        """What stands between the name and the arguments."""
        if (yield from self._reader.accept("[CALL_ID]")):
            yield from self._reader.word(NAME)
        yield from self._reader.accept("[ARGS]")
        yield from self._reader.space()


MISTRAL = ToolFamily(
    parser_type=MistralParser,
    call_syntax=CallSyntax(begin="[TOOL_CALLS]", middle="[ARGS]", end=""),
    new_id=mistral_id,
    template_marks=(("[TOOL_CALLS]",),),
)
