"""DeepSeek R1, Qwen 3, GLM 4.5, Kimi, Nemotron, MiniMax: `<think>…</think>` before the answer."""

from __future__ import annotations

from proxy.language.syntax.reasoning.family import ReasoningFamily
from proxy.language.syntax.reasoning.parser import TaggedReasoning


class ThinkParser(TaggedReasoning):
    """Only at the start: a `<think>` in the answer is text. Kimi-VL has triangles as brackets."""

    starts = ("<think>", "◁think▷")
    ends = ("</think>", "◁/think▷")
    closing = "\n</think>\n\n"


THINK = ReasoningFamily(parser_type=ThinkParser, template_marks=(("<think>",), ("</think>",)))
