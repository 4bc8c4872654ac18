"""Llama 3: `<|python_tag|>{"name": …, "parameters": {…}}`, the tag left out as often as not."""

from __future__ import annotations

from triton_openai.proxy.syntax.tools.bare_calls import BareCalls
from triton_openai.proxy.syntax.tools.call_objects import CallObjects


class Llama3JsonParser(BareCalls, CallObjects):
    """Objects with `; ` between them."""

    sections = (("<|python_tag|>", ""),)
