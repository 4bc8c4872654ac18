"""Llama 4: `[f(city="Paris")]`, sometimes between `<|python_start|>` and `<|python_end|>`."""

from __future__ import annotations

from proxy.language.syntax.tools.family import ToolFamily
from proxy.language.syntax.tools.pythonic import KEYWORD_CALLS, PythonicParser


class Llama4PythonicParser(PythonicParser):
    """The same list, with or without its tags."""

    sections = (("<|python_start|>", "<|python_end|>"),)
    starts = ("<|python_start|>",)


LLAMA4_PYTHONIC = ToolFamily(
    parser_type=Llama4PythonicParser,
    call_syntax=KEYWORD_CALLS,
    template_marks=(("<|python_start|>",),),
)
