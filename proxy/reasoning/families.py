"""Families of reasoning syntax by name."""

from __future__ import annotations

from importlib import import_module
from typing import NamedTuple

from proxy.reasoning.parser import ReasoningParser


class Family(NamedTuple):
    """Where a family's parser stands; imported when it is asked for."""

    module: str
    parser: str

    @property
    def parser_type(self) -> type[ReasoningParser]:
        found: type[ReasoningParser] = getattr(import_module(self.module), self.parser)
        return found


_THINK = Family("proxy.reasoning.think", "ThinkParser")

FAMILIES: dict[str, Family] = {
    "deepseek_r1": _THINK,
    "qwen3": _THINK,
    "glm45": _THINK,
    "kimi": _THINK,
    "nemotron": _THINK,
    "minimax": _THINK,
    "granite": Family("proxy.reasoning.granite", "GraniteParser"),
    "harmony": Family("proxy.reasoning.harmony", "HarmonyParser"),
    "mistral": Family("proxy.reasoning.mistral", "MistralParser"),
    "gemma4": Family("proxy.reasoning.gemma4", "Gemma4Parser"),
}
