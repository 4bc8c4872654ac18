"""All families of tool calls and of reasoning by name: our own, and those of installed packages.

To add a family, write its parser next to similar ones, and give it a row here.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from importlib.metadata import entry_points
from typing import Any, TypeVar

from proxy.language.syntax import reasoning
from proxy.language.syntax.element_calls import (
    Glm45Parser,
    Hy3Parser,
    MarkupCalls,
    MimoParser,
    MiniCpm5Parser,
    MiniMaxM2Parser,
    MuseGlimmerParser,
    Qwen3CoderParser,
    SeedOssParser,
)
from proxy.language.syntax.json_calls import (
    ApertusParser,
    CallObjects,
    CohereParser,
    ExaoneParser,
    GenericParser,
    GigaChat3Parser,
    GigaChat31Parser,
    Granite20bParser,
    GraniteParser,
    HermesParser,
    InternLMParser,
    JambaParser,
    JsonListParser,
    Llama3JsonParser,
    Llama4JsonParser,
    MistralParser,
    NemotronV2Parser,
    Phi4MiniParser,
    XlamParser,
)
from proxy.language.syntax.marked_calls import (
    DeepSeekV3Parser,
    DeepSeekV31Parser,
    FunctionGemmaParser,
    Gemma4Parser,
    HarmonyParser,
    KimiK2Parser,
    SolarOpenParser,
)
from proxy.language.syntax.nested_calls import (
    CohereXmlParser,
    DeepSeekV32Parser,
    KimiK3Parser,
    MiniMaxM3Parser,
)
from proxy.language.syntax.pythonic import Lfm2Parser, Llama4PythonicParser, PythonicParser
from proxy.language.syntax.reasoning import ReasoningParser
from proxy.language.syntax.tool_parser import SectionCalls, ToolParser

Parser = TypeVar("Parser", bound=type[Any])

# Entry points of users' packages: each is a parser's class.
TOOL_ENTRY_POINTS = "triton_openai.tool_parsers"
REASONING_ENTRY_POINTS = "triton_openai.reasoning_parsers"

# A chat template belongs to the first family whose marks it contains: families whose marks occur
# in the templates of others, too, stand behind those. Of equal ones the first gives the name.
TOOL_FAMILIES: dict[str, type[ToolParser]] = {
    "kimi_k2": KimiK2Parser,
    "kimi_k3": KimiK3Parser,
    "deepseek_v32": DeepSeekV32Parser,
    "deepseek_v3": DeepSeekV3Parser,
    "deepseek_v31": DeepSeekV31Parser,
    "minimax_m3": MiniMaxM3Parser,
    "minimax_m2": MiniMaxM2Parser,
    "harmony": HarmonyParser,
    "gemma4": Gemma4Parser,
    "functiongemma": FunctionGemmaParser,
    "muse_glimmer": MuseGlimmerParser,
    "glm45": Glm45Parser,
    "hy3": Hy3Parser,
    "seed_oss": SeedOssParser,
    "minicpm5": MiniCpm5Parser,
    "solar_open": SolarOpenParser,
    "apertus": ApertusParser,
    "nemotron_v2": NemotronV2Parser,
    "lfm2": Lfm2Parser,
    "gigachat31": GigaChat31Parser,
    "gigachat3": GigaChat3Parser,
    "mimo": MimoParser,
    "qwen3_coder": Qwen3CoderParser,
    "qwen3_xml": Qwen3CoderParser,
    "internlm": InternLMParser,
    "phi4_mini_json": Phi4MiniParser,
    "mistral": MistralParser,
    "cohere_xml": CohereXmlParser,
    "cohere": CohereParser,
    "jamba": JambaParser,
    "granite_20b_fc": Granite20bParser,
    "granite": GraniteParser,
    "exaone": ExaoneParser,
    "hermes": HermesParser,
    "llama4_pythonic": Llama4PythonicParser,
    "llama4_json": Llama4JsonParser,
    "llama3_json": Llama3JsonParser,
    "pythonic": PythonicParser,
    "xlam": XlamParser,
    "json_list": JsonListParser,
    "generic": GenericParser,
}
REASONING_FAMILIES: dict[str, type[ReasoningParser]] = {
    "harmony": reasoning.HarmonyParser,
    "gemma4": reasoning.Gemma4Parser,
    "muse_glimmer": reasoning.MuseGlimmerParser,
    "mistral": reasoning.MistralParser,
    "cohere": reasoning.CohereParser,
    "kimi_k3": reasoning.KimiK3Parser,
    "minimax_m3": reasoning.MiniMaxM3Parser,
    "granite": reasoning.GraniteParser,
    "seed_oss": reasoning.SeedOssParser,
    "hy3": reasoning.Hy3Parser,
    "apertus": reasoning.ApertusParser,
    "solar_open": reasoning.SolarOpenParser,
    "qwen3": reasoning.ThinkParser,
    "deepseek_r1": reasoning.ThinkParser,
    "glm45": reasoning.ThinkParser,
    "kimi": reasoning.ThinkParser,
    "nemotron": reasoning.ThinkParser,
    "minimax": reasoning.ThinkParser,
}


def _bodies(family: type[ToolParser]) -> dict[str, dict[str, type[ToolParser]]]:
    """What a fine-tuned or quantized model writes between the marks of the family: JSON objects in
    place of elements or a list in Python, and Qwen's elements in place of others or of objects.
    """
    sections = tuple(filter(all, family.sections))
    if issubclass(family, MarkupCalls) and not sections:
        sections = ((family.call_begin, family.markup.end),)
    starts, begin = [start for start, _ in sections], ""
    base: type[ToolParser] | None = CallObjects if issubclass(family, SectionCalls) else None
    if issubclass(family, PythonicParser):
        starts, base = ["", *starts], Llama3JsonParser
    bodies: dict[str, type[ToolParser]] = {}
    if issubclass(family, SectionCalls) and family.call_begin.endswith((">", "]")):
        begin = family.call_begin
        starts, sections = [*starts, begin], ((begin, ""), *sections)
    if base is not None:
        objects = {"sections": sections, "inner_marks": family.marks(), "lead_in": begin}
        kind = type(f"{family.__name__}Objects", (base,), objects)
        bodies |= {f"{lead}{opening}": kind for lead in {begin, ""} for opening in ("{", "[{")}
    is_markup = issubclass(family, MarkupCalls) and family.call_begin != "<function="
    if is_markup or issubclass(family, CallObjects):
        elements = type(f"{family.__name__}Elements", (Qwen3CoderParser,), {"sections": sections})
        bodies["<function="] = elements
    return {start: {**family.other_bodies.get(start, {}), **bodies} for start in starts}


for _family in TOOL_FAMILIES.values():
    _family.other_bodies = _bodies(_family)


def tool_family(name: str) -> type[ToolParser]:
    """Raises KeyError: no family has this name; the message lists those that exist."""
    return TOOL_FAMILIES.get(name) or _plugin(TOOL_ENTRY_POINTS, name, ToolParser)


def reasoning_family(name: str) -> type[ReasoningParser]:
    """Raises as `tool_family`."""
    return REASONING_FAMILIES.get(name) or _plugin(REASONING_ENTRY_POINTS, name, ReasoningParser)


def in_template(chat_template: str, families: Mapping[str, type[Any]]) -> str | None:
    """The name of the first family with an alternative whose marks are all in the template."""
    for name, family in families.items():
        if any(all(mark in chat_template for mark in marks) for marks in family.template_marks):
            return name
    return None


@lru_cache(maxsize=16)
def _plugin(group: str, name: str, kind: Parser) -> Parser:
    """What an installed package offers. Cached: searching all packages takes milliseconds."""
    offered = entry_points(group=group)
    for point in offered.select(name=name):
        found: Parser = point.load()
        if not (isinstance(found, type) and issubclass(found, kind)):
            raise KeyError(f"{point.value!r} of {group!r} is not a subclass of {kind.__name__}")
        return found
    ours = TOOL_FAMILIES if group == TOOL_ENTRY_POINTS else REASONING_FAMILIES
    known = ", ".join(sorted([*ours, *offered.names]))
    raise KeyError(
        f"no parser is called {name!r}; there are {known}, and entry points of {group!r}"
    )
