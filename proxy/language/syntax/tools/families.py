"""All families of tool-call syntax by name: our own, and those of installed packages.

To add a family, write its parser, in a file of its own or beside its like, and give it a row here.
"""

from __future__ import annotations

from proxy.language.syntax.parsing.plugins import in_template, named
from proxy.language.syntax.tools.deepseek import DEEPSEEK_V3, DEEPSEEK_V31, DEEPSEEK_V32
from proxy.language.syntax.tools.family import ToolFamily
from proxy.language.syntax.tools.gemma4 import GEMMA4
from proxy.language.syntax.tools.harmony import HARMONY
from proxy.language.syntax.tools.json_families import (
    GRANITE,
    HERMES,
    INTERNLM,
    JAMBA,
    JSON_LIST,
    LLAMA3_JSON,
    MISTRAL,
    PHI4_MINI_JSON,
    XLAM,
)
from proxy.language.syntax.tools.kimi_k2 import KIMI_K2
from proxy.language.syntax.tools.markup_families import GLM45, MINIMAX_M2, QWEN3_CODER
from proxy.language.syntax.tools.pythonic import LLAMA4_PYTHONIC, PYTHONIC

# Entry points of users' packages: each is a ToolFamily, or a ToolParser alone.
ENTRY_POINTS = "triton_openai.tool_parsers"

# A chat template belongs to the first family whose marks it contains: families whose marks occur
# in the templates of others, too, stand behind those.
FAMILIES: dict[str, ToolFamily] = {
    "kimi_k2": KIMI_K2,
    "deepseek_v32": DEEPSEEK_V32,
    "deepseek_v3": DEEPSEEK_V3,
    "deepseek_v31": DEEPSEEK_V31,
    "minimax_m2": MINIMAX_M2,
    "harmony": HARMONY,
    "gemma4": GEMMA4,
    "glm45": GLM45,
    "qwen3_coder": QWEN3_CODER,
    "qwen3_xml": QWEN3_CODER,
    "internlm": INTERNLM,
    "phi4_mini_json": PHI4_MINI_JSON,
    "mistral": MISTRAL,
    "jamba": JAMBA,
    "granite": GRANITE,
    "hermes": HERMES,
    "llama4_pythonic": LLAMA4_PYTHONIC,
    "llama3_json": LLAMA3_JSON,
    "pythonic": PYTHONIC,
    "xlam": XLAM,
    "json_list": JSON_LIST,
}


def family(name: str) -> ToolFamily:
    """Raises KeyError: no family has this name; the message lists those that exist."""
    return named(name, FAMILIES, ENTRY_POINTS, ToolFamily)


def from_template(chat_template: str) -> str | None:
    """The name of the family that a chat template shows; None if it shows none."""
    return in_template(chat_template, FAMILIES)
