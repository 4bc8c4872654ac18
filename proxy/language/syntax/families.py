"""All families of tool calls and of reasoning by name: our own, and those of installed packages.

To add a family, write its parser next to similar ones, and give it a row here.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, TypeVar

from proxy.language.syntax import (
    element_calls,
    json_calls,
    marked_calls,
    nested_calls,
    pythonic,
    reasoning,
)
from proxy.language.syntax.reasoning import ReasoningParser
from proxy.language.syntax.tool_parser import SectionCalls, ToolParser

if TYPE_CHECKING:
    from proxy.language.syntax.response_template import Described

Parser = TypeVar("Parser", bound=type[Any])

# Entry points of users' packages: each is a parser's class.
TOOL_ENTRY_POINTS = "triton_openai.tool_parsers"
REASONING_ENTRY_POINTS = "triton_openai.reasoning_parsers"

# With the template's JSON behind it, the name of a family that a checkpoint describes.
RESPONSE_TEMPLATE = "response_template:"

# A chat template belongs to the first family whose marks it contains: families whose marks occur
# in the templates of others, too, stand behind those. Of equal ones the first gives the name.
TOOL_FAMILIES: dict[str, type[ToolParser]] = {
    "kimi_k2": marked_calls.KimiK2Parser,
    "kimi_k3": nested_calls.KimiK3Parser,
    "deepseek_v32": nested_calls.DeepSeekV32Parser,
    "deepseek_v3": marked_calls.DeepSeekV3Parser,
    "deepseek_v31": marked_calls.DeepSeekV31Parser,
    "minimax_m3": nested_calls.MiniMaxM3Parser,
    "minimax_m2": element_calls.MiniMaxM2Parser,
    "harmony": marked_calls.HarmonyParser,
    "gemma4": marked_calls.Gemma4Parser,
    "functiongemma": marked_calls.FunctionGemmaParser,
    "muse_glimmer": element_calls.MuseGlimmerParser,
    "glm45": element_calls.Glm45Parser,
    "hy3": element_calls.Hy3Parser,
    "seed_oss": element_calls.SeedOssParser,
    "minicpm5": element_calls.MiniCpm5Parser,
    "solar_open": marked_calls.SolarOpenParser,
    "apertus": json_calls.ApertusParser,
    "nemotron_v2": json_calls.NemotronV2Parser,
    "lfm2": pythonic.Lfm2Parser,
    "gigachat31": json_calls.GigaChat31Parser,
    "gigachat3": json_calls.GigaChat3Parser,
    "mimo": element_calls.MimoParser,
    "qwen3_coder": element_calls.Qwen3CoderParser,
    "qwen3_xml": element_calls.Qwen3CoderParser,
    "internlm": json_calls.InternLMParser,
    "phi4_mini_json": json_calls.Phi4MiniParser,
    "mistral": json_calls.MistralParser,
    "cohere_xml": nested_calls.CohereXmlParser,
    "cohere": json_calls.CohereParser,
    "jamba": json_calls.JambaParser,
    "granite_20b_fc": json_calls.Granite20bParser,
    "granite": json_calls.GraniteParser,
    "exaone": json_calls.ExaoneParser,
    "hermes": json_calls.HermesParser,
    "llama4_pythonic": pythonic.Llama4PythonicParser,
    "llama4_json": json_calls.Llama4JsonParser,
    "llama3_json": json_calls.Llama3JsonParser,
    "pythonic": pythonic.PythonicParser,
    "xlam": json_calls.XlamParser,
    "json_list": json_calls.JsonListParser,
    "generic": json_calls.GenericParser,
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
    if issubclass(family, element_calls.MarkupCalls) and not sections:
        sections = ((family.call_begin, family.markup.end),)
    starts, begin = [start for start, _ in sections], ""
    base: type[ToolParser] | None = (
        json_calls.CallObjects if issubclass(family, SectionCalls) else None
    )
    if issubclass(family, pythonic.PythonicParser):
        starts, base = ["", *starts], json_calls.Llama3JsonParser
    bodies: dict[str, type[ToolParser]] = {}
    if issubclass(family, SectionCalls) and family.call_begin.endswith((">", "]")):
        begin = family.call_begin
        starts, sections = [*starts, begin], ((begin, ""), *sections)
    if base is not None:
        objects = {"sections": sections, "inner_marks": family.marks(), "lead_in": begin}
        kind = type(f"{family.__name__}Objects", (base,), objects)
        bodies |= {f"{lead}{opening}": kind for lead in {begin, ""} for opening in ("{", "[{")}
    is_markup = issubclass(family, element_calls.MarkupCalls) and family.call_begin != "<function="
    if is_markup or issubclass(family, json_calls.CallObjects):
        elements = type(
            f"{family.__name__}Elements", (element_calls.Qwen3CoderParser,), {"sections": sections}
        )
        bodies["<function="] = elements
    return {start: {**family.other_bodies.get(start, {}), **bodies} for start in starts}


for _family in TOOL_FAMILIES.values():
    _family.other_bodies = _bodies(_family)


def tool_family(name: str) -> type[ToolParser]:
    """Raises KeyError: no family has this name; the message lists those that exist."""
    if name.startswith(RESPONSE_TEMPLATE) and (found := of_checkpoint(name).tools):
        return found
    return TOOL_FAMILIES.get(name) or _plugin(TOOL_ENTRY_POINTS, name, ToolParser)


def reasoning_family(name: str) -> type[ReasoningParser]:
    """Raises as `tool_family`."""
    if name.startswith(RESPONSE_TEMPLATE) and (found := of_checkpoint(name).reasoning):
        return found
    return REASONING_FAMILIES.get(name) or _plugin(REASONING_ENTRY_POINTS, name, ReasoningParser)


@lru_cache(maxsize=64)
def of_checkpoint(name: str) -> Described:
    """The families of a name that begins with RESPONSE_TEMPLATE. Raises Refused."""
    # it imports pydantic, which costs each child of the sandbox 5 MB
    from proxy.language.syntax.response_template import described

    found = described(name.removeprefix(RESPONSE_TEMPLATE))
    if found.tools is not None:
        found.tools.other_bodies = _bodies(found.tools)
    return found


def in_template(chat_template: str, families: Mapping[str, type[Any]]) -> str | None:
    """The name of the first family with an alternative whose marks are all in the template."""
    for name, family in families.items():
        alternatives = family.template_marks
        if alternatives is None:
            alternatives = (family.starts[:1],)
        if any(all(mark in chat_template for mark in marks) for marks in alternatives):
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
