"""Magistral: `[THINK]…[/THINK]`, which are special tokens."""

from __future__ import annotations

from proxy.language.syntax.reasoning.family import ReasoningFamily
from proxy.language.syntax.reasoning.parser import TaggedReasoning


class MistralParser(TaggedReasoning):
    """The tags count anywhere in the text."""

    starts = ("[THINK]",)
    ends = ("[/THINK]",)
    closing = "[/THINK]"
    is_anywhere = True


MISTRAL = ReasoningFamily(parser_type=MistralParser, template_marks=(("[THINK]",),))
