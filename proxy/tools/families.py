"""Families of tool-call syntax by name, and the guess from a model's chat template."""

from __future__ import annotations

from importlib import import_module
from typing import NamedTuple

from proxy.tools.ids import NewId, openai_id
from proxy.tools.parser import ToolParser, Tools


class Family(NamedTuple):
    """Where a family's parser stands, and the ids its models want; imported when made."""

    module: str
    parser: str
    new_id: NewId = openai_id

    @property
    def parser_type(self) -> type[ToolParser]:
        found: type[ToolParser] = getattr(import_module(self.module), self.parser)
        return found

    def make(self, tools: Tools | None = None, new_id: NewId | None = None) -> ToolParser:
        return self.parser_type(tools, new_id or self.new_id)


FAMILIES: dict[str, Family] = {
    "hermes": Family("proxy.tools.hermes", "HermesParser"),
    "granite": Family("proxy.tools.granite", "GraniteParser"),
    "jamba": Family("proxy.tools.jamba", "JambaParser"),
    "phi4_mini_json": Family("proxy.tools.phi4_mini_json", "Phi4MiniParser"),
    "internlm": Family("proxy.tools.internlm", "InternLMParser"),
}
