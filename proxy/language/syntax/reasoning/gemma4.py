"""Gemma 4: `<|channel>thought`, newline, the reasoning, `<channel|>`."""

from __future__ import annotations

from proxy.language.syntax.reasoning.family import ReasoningFamily
from proxy.language.syntax.reasoning.parser import TaggedReasoning


class Gemma4Parser(TaggedReasoning):
    """The channel's name is not part of the reasoning."""

    starts = ("<|channel>",)
    ends = ("<channel|>",)
    closing = "<channel|>"
    label = "thought\n"
    is_anywhere = True

    @classmethod
    def opens_in(cls, prompt_tail: str) -> bool:
        return super().opens_in(prompt_tail.rstrip().removesuffix("thought"))


GEMMA4 = ReasoningFamily(parser_type=Gemma4Parser, template_marks=(("<|channel>", "thought"),))
