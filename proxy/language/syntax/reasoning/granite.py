"""Granite 3.2: "Here is my thought process: … Here is my response: …"; 3.3 has tags."""

from __future__ import annotations

from proxy.language.syntax.reasoning.family import ReasoningFamily
from proxy.language.syntax.reasoning.parser import TaggedReasoning


class GraniteParser(TaggedReasoning):
    """Also accepts "Here's", which small or quantized models write."""

    starts = ("Here is my thought process:", "Here's my thought process:", "<think>")
    closing = "\nHere is my response:\n"
    ends = ("Here is my response:", "Here's my response:", "</think>")

    @classmethod
    def opens_in(cls, prompt_tail: str) -> bool:
        return prompt_tail.rstrip().endswith("<think>")


GRANITE = ReasoningFamily(
    parser_type=GraniteParser, template_marks=(("Here is my thought process",),)
)
