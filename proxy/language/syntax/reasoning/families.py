"""All families of reasoning syntax by name: our own, and those of installed packages.

To add a family, write its parser here, or in a file of its own, and give it a row in FAMILIES.
"""

from __future__ import annotations

from proxy.language.syntax.parsing.plugins import in_template, named
from proxy.language.syntax.reasoning.harmony import HARMONY
from proxy.language.syntax.reasoning.parser import ReasoningFamily, TaggedReasoning


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

# Entry points of users' packages: each is a ReasoningFamily, or a ReasoningParser alone.
ENTRY_POINTS = "triton_openai.reasoning_parsers"

# A chat template belongs to the first family whose marks it contains: families whose marks occur
# in the templates of others, too, stand behind those. Of equal ones the first gives the name.
FAMILIES: dict[str, ReasoningFamily] = {
    "harmony": HARMONY,
    "gemma4": GEMMA4,
    "mistral": MISTRAL,
    "granite": GRANITE,
    "qwen3": THINK,
    "deepseek_r1": THINK,
    "glm45": THINK,
    "kimi": THINK,
    "nemotron": THINK,
    "minimax": THINK,
}


def family(name: str) -> ReasoningFamily:
    """Raises KeyError: no family has this name; the message lists those that exist."""
    return named(name, FAMILIES, ENTRY_POINTS, ReasoningFamily)


def from_template(chat_template: str) -> str | None:
    """The name of the family that a chat template shows; None if it shows none."""
    return in_template(chat_template, FAMILIES)
