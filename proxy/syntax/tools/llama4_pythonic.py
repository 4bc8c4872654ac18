"""Llama 4: `[f(city="Paris")]`, at times between `<|python_start|>` and `<|python_end|>`."""

from __future__ import annotations

from triton_openai.proxy.syntax.tools.pythonic import PythonicParser


class Llama4PythonicParser(PythonicParser):
    """The same list, with or without its tags."""

    sections = (("<|python_start|>", "<|python_end|>"),)
    starts = ("<|python_start|>",)
