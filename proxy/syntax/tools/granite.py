"""Granite 3: `<|tool_call|>[{"name": …, "arguments": {…}}]`; 3.1 has `<tool_call>`."""

from __future__ import annotations

from triton_openai.proxy.syntax.tools.call_objects import CallObjects


class GraniteParser(CallObjects):
    """A list after either tag."""

    sections = (("<|tool_call|>", ""), ("<tool_call>", "</tool_call>"))
