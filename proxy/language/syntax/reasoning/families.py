"""All families of reasoning syntax by name: our own, and those of installed packages.

To add a family, write its parser, in a file of its own or beside its like, and give it a row here.
"""

from __future__ import annotations

from proxy.language.syntax.parsing.plugins import has_marks, plugin
from proxy.language.syntax.reasoning.family import ReasoningFamily
from proxy.language.syntax.reasoning.harmony import HARMONY
from proxy.language.syntax.reasoning.tagged_families import GEMMA4, GRANITE, MISTRAL, THINK

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
    """One of ours, or of an installed package.

    Raises:
        KeyError: no family has this name; the message lists those that exist.
    """
    found = FAMILIES.get(name)
    if found is not None:
        return found
    offered = plugin(ENTRY_POINTS, name, tuple(FAMILIES))
    return offered if isinstance(offered, ReasoningFamily) else ReasoningFamily(parser_type=offered)


def from_template(chat_template: str) -> str | None:
    """The name of the family whose marks a chat template contains; None if it shows none."""
    names = (name for name, one in FAMILIES.items() if has_marks(chat_template, one.template_marks))
    return next(names, None)
