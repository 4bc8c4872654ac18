"""Families of reasoning syntax by name."""

from __future__ import annotations

from importlib import import_module
from typing import NamedTuple

from triton_openai.proxy.syntax.parsing.plugins import marked, own_parser
from triton_openai.proxy.syntax.reasoning.parser import ReasoningParser


class Family(NamedTuple):
    """Where a family's parser stands; imported when it is asked for."""

    module: str
    parser: str

    @property
    def parser_type(self) -> type[ReasoningParser]:
        found: type[ReasoningParser] = getattr(import_module(self.module), self.parser)
        return found


# Parsers of the user's own: entry points of this group, a ReasoningParser each.
ENTRY_POINTS = "triton_openai.reasoning_parsers"

_THINK = Family("triton_openai.proxy.syntax.reasoning.think", "ThinkParser")

FAMILIES: dict[str, Family] = {
    "deepseek_r1": _THINK,
    "qwen3": _THINK,
    "glm45": _THINK,
    "kimi": _THINK,
    "nemotron": _THINK,
    "minimax": _THINK,
    "granite": Family("triton_openai.proxy.syntax.reasoning.granite", "GraniteParser"),
    "harmony": Family("triton_openai.proxy.syntax.reasoning.harmony", "HarmonyParser"),
    "mistral": Family("triton_openai.proxy.syntax.reasoning.mistral", "MistralParser"),
    "gemma4": Family("triton_openai.proxy.syntax.reasoning.gemma4", "Gemma4Parser"),
}

# What a template must hold, all of it, for a family; the first that fits counts.
_TEMPLATE_MARKS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("harmony", ("<|channel|>", "analysis")),
    ("gemma4", ("<|channel>", "thought")),
    ("mistral", ("[THINK]",)),
    ("granite", ("Here is my thought process",)),
    ("qwen3", ("<think>",)),
    ("qwen3", ("</think>",)),
)


def family(name: str) -> Family:
    """One of ours, or of an installed package.

    Raises:
        KeyError: there is none of this name; the message lists them.
    """
    found = FAMILIES.get(name)
    return Family(*own_parser(ENTRY_POINTS, name, FAMILIES)) if found is None else found


def from_template(chat_template: str) -> str | None:
    """The family whose marks a chat template holds; None if it shows none that we know."""
    return marked(chat_template, _TEMPLATE_MARKS)
