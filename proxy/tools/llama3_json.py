"""Llama 3: `<|python_tag|>{"name": …, "parameters": {…}}`, the tag left out as often as not."""

from __future__ import annotations

from proxy.tools.call_objects import CallObjects
from proxy.tools.line_start import LineStart


class Llama3JsonParser(LineStart, CallObjects):
    """Objects with `; ` between them."""

    sections = (("<|python_tag|>", ""),)
