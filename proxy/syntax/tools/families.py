"""Families of tool-call syntax by name, and the guess from a model's chat template."""

from __future__ import annotations

from importlib import import_module
from typing import NamedTuple

from triton_openai.proxy.syntax.parsing.plugins import marked, own_parser
from triton_openai.proxy.syntax.tools.call_writer import Tools
from triton_openai.proxy.syntax.tools.ids import NewId, kimi_id, mistral_id, openai_id
from triton_openai.proxy.syntax.tools.parser import ToolParser


class Family(NamedTuple):
    """Where a family's parser stands, and the ids its models want; imported when made."""

    module: str
    parser: str
    new_id: NewId = openai_id

    @property
    def parser_type(self) -> type[ToolParser]:
        found: type[ToolParser] = getattr(import_module(self.module), self.parser)
        return found

    def make(
        self,
        tools: Tools | None = None,
        new_id: NewId | None = None,
        *,
        only_known: bool = False,
    ) -> ToolParser:
        return self.parser_type(tools, new_id or self.new_id, only_known=only_known)


# Parsers of the user's own: entry points of this group, a ToolParser each.
ENTRY_POINTS = "triton_openai.tool_parsers"

FAMILIES: dict[str, Family] = {
    "hermes": Family("triton_openai.proxy.syntax.tools.hermes", "HermesParser"),
    "granite": Family("triton_openai.proxy.syntax.tools.granite", "GraniteParser"),
    "jamba": Family("triton_openai.proxy.syntax.tools.jamba", "JambaParser"),
    "phi4_mini_json": Family("triton_openai.proxy.syntax.tools.phi4_mini_json", "Phi4MiniParser"),
    "mistral": Family("triton_openai.proxy.syntax.tools.mistral", "MistralParser", mistral_id),
    "llama3_json": Family("triton_openai.proxy.syntax.tools.llama3_json", "Llama3JsonParser"),
    "xlam": Family("triton_openai.proxy.syntax.tools.xlam", "XlamParser"),
    "pythonic": Family("triton_openai.proxy.syntax.tools.pythonic", "PythonicParser"),
    "llama4_pythonic": Family(
        "triton_openai.proxy.syntax.tools.llama4_pythonic", "Llama4PythonicParser"
    ),
    "qwen3_coder": Family("triton_openai.proxy.syntax.tools.qwen3_coder", "Qwen3CoderParser"),
    "qwen3_xml": Family("triton_openai.proxy.syntax.tools.qwen3_coder", "Qwen3CoderParser"),
    "minimax_m2": Family("triton_openai.proxy.syntax.tools.minimax_m2", "MiniMaxM2Parser"),
    "glm45": Family("triton_openai.proxy.syntax.tools.glm45", "Glm45Parser"),
    "deepseek_v3": Family("triton_openai.proxy.syntax.tools.deepseek_v3", "DeepSeekV3Parser"),
    "deepseek_v31": Family("triton_openai.proxy.syntax.tools.deepseek_v31", "DeepSeekV31Parser"),
    "deepseek_v32": Family("triton_openai.proxy.syntax.tools.deepseek_v32", "DeepSeekV32Parser"),
    "kimi_k2": Family("triton_openai.proxy.syntax.tools.kimi_k2", "KimiK2Parser", kimi_id),
    "harmony": Family("triton_openai.proxy.syntax.tools.harmony", "HarmonyParser"),
    "gemma4": Family("triton_openai.proxy.syntax.tools.gemma4", "Gemma4Parser"),
    "internlm": Family("triton_openai.proxy.syntax.tools.internlm", "InternLMParser"),
    "json_list": Family("triton_openai.proxy.syntax.tools.json_list", "JsonListParser"),
}

# What a template must hold, all of it, for a family; the first that fits counts.
_TEMPLATE_MARKS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("kimi_k2", ("<|tool_calls_section_begin|>",)),
    ("deepseek_v32", ("｜DSML｜",)),
    ("deepseek_v3", ("<｜tool▁call▁begin｜>", "```json")),
    ("deepseek_v31", ("<｜tool▁call▁begin｜>",)),
    ("minimax_m2", ("<minimax:tool_call>",)),
    ("harmony", ("<|channel|>", "commentary")),
    ("gemma4", ("<|tool_call>", "<tool_call|>")),
    ("glm45", ("<arg_key>",)),
    ("qwen3_coder", ("<function=", "<parameter=")),
    ("internlm", ("<|action_start|>",)),
    ("phi4_mini_json", ("functools[",)),
    ("phi4_mini_json", ("<|tool|>", "<|/tool|>")),
    ("mistral", ("[TOOL_CALLS]",)),
    ("jamba", ("<tool_calls>",)),
    ("granite", ("<|tool_call|>",)),
    ("hermes", ("<tool_call>",)),
    ("llama4_pythonic", ("<|python_start|>",)),
    ("llama3_json", ("<|python_tag|>",)),
    ("llama3_json", ("Environment: ipython", '"parameters"')),
    ("pythonic", ("[func_name1(",)),
)


def family(name: str) -> Family:
    """One of ours, or of an installed package.

    Raises:
        KeyError: there is none of this name; the message lists them.
    """
    found = FAMILIES.get(name)
    if found is None:
        module, parser = own_parser(ENTRY_POINTS, name, FAMILIES)
        found = Family(module, parser)
    return found


def from_template(chat_template: str) -> str | None:
    """The family whose marks a chat template holds; None if it shows none that we know."""
    return marked(chat_template, _TEMPLATE_MARKS)
