"""Hermes, Qwen 2.5, Qwen 3, Granite 4: `<tool_call>{"name": …, "arguments": {…}}</tool_call>`."""

from __future__ import annotations

from triton_openai.proxy.syntax.tools.call_objects import CallObjects


class HermesParser(CallObjects):
    """One object between the tags; a list or several objects are taken too."""

    sections = (("<tool_call>", "</tool_call>"),)
