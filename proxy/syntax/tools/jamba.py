"""Jamba: `<tool_calls>[{"name": …, "arguments": {…}}]</tool_calls>`."""

from __future__ import annotations

from triton_openai.proxy.syntax.tools.call_objects import CallObjects


class JambaParser(CallObjects):
    """A list between the tags."""

    sections = (("<tool_calls>", "</tool_calls>"),)
