"""xLAM: a bare list `[{"name": …, "arguments": {…}}]`, at times fenced or after a tag."""

from __future__ import annotations

from triton_openai.proxy.syntax.tools.bare_calls import BareCalls
from triton_openai.proxy.syntax.tools.call_objects import CallObjects


class XlamParser(BareCalls, CallObjects):
    """A list, or one object."""

    sections = (
        ("```json", "```"),
        ("[TOOL_CALLS]", ""),
        ("<tool_call>", "</tool_call>"),
    )
    weak_starts = ("", "```json")
