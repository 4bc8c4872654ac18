"""The families whose reasoning stands between two tags."""

from __future__ import annotations

from proxy.language.syntax.reasoning.family import ReasoningFamily
from proxy.language.syntax.reasoning.parser import TaggedReasoning


class Gemma4Parser(TaggedReasoning):
    """Gemma 4: `<|channel>thought`, newline, the reasoning, `<channel|>`.

    The channel's name is not part of the reasoning.
    """

    starts = ("<|channel>",)
    ends = ("<channel|>",)
    closing = "<channel|>"
    label = "thought\n"
    is_anywhere = True

    @classmethod
    def opens_in(cls, prompt_tail: str) -> bool:
        return super().opens_in(prompt_tail.rstrip().removesuffix("thought"))


GEMMA4 = ReasoningFamily(parser_type=Gemma4Parser, template_marks=(("<|channel>", "thought"),))


class GraniteParser(TaggedReasoning):
    """Granite 3.2: "Here is my thought process: … Here is my response: …"; 3.3 has tags.

    Also accepts "Here's", which small or quantized models write.
    """

    starts = ("Here is my thought process:", "Here's my thought process:", "<think>")
    closing = "\nHere is my response:\n"
    ends = ("Here is my response:", "Here's my response:", "</think>")

    @classmethod
    def opens_in(cls, prompt_tail: str) -> bool:
        return prompt_tail.rstrip().endswith("<think>")


GRANITE = ReasoningFamily(
    parser_type=GraniteParser, template_marks=(("Here is my thought process",),)
)


class MistralParser(TaggedReasoning):
    """Magistral: `[THINK]…[/THINK]`, which are special tokens.

    The tags count anywhere in the text.
    """

    starts = ("[THINK]",)
    ends = ("[/THINK]",)
    closing = "[/THINK]"
    is_anywhere = True


MISTRAL = ReasoningFamily(parser_type=MistralParser, template_marks=(("[THINK]",),))


class ThinkParser(TaggedReasoning):
    """DeepSeek R1, Qwen 3, GLM 4.5, Kimi, Nemotron, MiniMax: `<think>…</think>` before the answer.

    Only at the start: a `<think>` in the answer is text. Kimi-VL has triangles as brackets.
    """

    starts = ("<think>", "◁think▷")
    ends = ("</think>", "◁/think▷")
    closing = "\n</think>\n\n"


THINK = ReasoningFamily(parser_type=ThinkParser, template_marks=(("<think>",), ("</think>",)))
