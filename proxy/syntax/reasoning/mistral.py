"""Magistral: `[THINK]…[/THINK]`, special tokens both."""

from __future__ import annotations

from triton_openai.proxy.syntax.reasoning.parser import TaggedReasoning


class MistralParser(TaggedReasoning):
    """The tags count wherever they stand."""

    starts = ("[THINK]",)
    ends = ("[/THINK]",)
    closing = "[/THINK]"
    is_anywhere = True
