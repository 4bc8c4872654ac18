"""xLAM: a bare list `[{"name": …, "arguments": {…}}]`, sometimes fenced or after a tag."""

from __future__ import annotations

from proxy.language.syntax.tools.bare_calls import BareCalls
from proxy.language.syntax.tools.call_objects import CallObjects
from proxy.language.syntax.tools.call_syntax import object_list
from proxy.language.syntax.tools.family import ToolFamily


class XlamParser(BareCalls, CallObjects):
    """A list, or one object."""

    sections = (
        ("```json", "```"),
        ("[TOOL_CALLS]", ""),
        ("<tool_call>", "</tool_call>"),
    )
    weak_starts = ("", "```json")


XLAM = ToolFamily(
    parser_type=XlamParser,
    call_syntax=object_list("[", "]"),
)
