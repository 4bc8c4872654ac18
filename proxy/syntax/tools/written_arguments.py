"""Arguments in syntaxes that are not JSON: Python's keywords, and elements like those of XML."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from triton_openai.proxy.structured.keywords import is_wide
from triton_openai.proxy.structured.schema_tree import DEFINITIONS, followed, schemas
from triton_openai.proxy.structured.structural_tags import Format, json_format
from triton_openai.proxy.syntax.tools.markup_calls import Markup
from triton_openai.proxy.syntax.tools.typed import types_of

# (name, schema of the value) -> how one argument is written
Writer = Callable[[str, Any], Format]
_PLAIN = {
    *("type", "properties", "required", "additionalProperties", "title", "description", "$schema"),
    *DEFINITIONS,
}
_LENGTHS = ("minLength", "maxLength")
_TEXT = {*_LENGTHS, "type", "enum", "const", "pattern", "title", "description", "default", "format"}
_NAME = re.compile(r"[^<>\"\s]+")


# Each of them begins a form of its own, of those that may follow it: the square of their number.
OPTIONAL_AT_MOST = 64


def written(schema: Any, write: Writer, separator: str) -> Format:
    """Required arguments first, each group in the order of the schema."""
    properties: Mapping[str, Any] = schema.get("properties", {})
    shared = {name: schema[name] for name in DEFINITIONS if name in schema}
    needed = [name for name in properties if name in schema.get("required", ())]
    others = [name for name in properties if name not in needed]
    one = {name: write(name, _with(value, shared)) for name, value in properties.items()}

    def following(name: str) -> Format:
        return sequence(literal(separator), one[name])

    def optional(names: list[str]) -> list[Format]:
        return [{"type": "optional", "content": following(name)} for name in names]

    if needed:
        first, *more = needed
        return sequence(one[first], *map(following, more), *optional(others))
    starts = [sequence(one[name], *optional(others[at + 1 :])) for at, name in enumerate(others)]
    return {"type": "or", "elements": [literal(""), *starts]}


def keyword_arguments(schema: Any) -> Format:
    """`city="Paris", days=2`"""
    return written(schema, lambda name, one: sequence(literal(f"{name}="), json_format(one)), ", ")


def has_keywords(schema: Any) -> bool:
    """Whether the arguments that it describes can be written so."""
    return _is_plain(schema) and all(name.isidentifier() for name in schema.get("properties", {}))


def markup_arguments(markup: Markup, *, says_type: bool = False) -> Callable[[Any], Format]:
    """`<parameter=city>Paris</parameter>`: strings bare, all else JSON, as the parser reads it.

    says_type: a parameter's tag says whether it is a string.
    """
    line = "\n" if markup.has_lines else ""

    def write(name: str, schema: Any) -> Format:
        is_text = types_of(schema, schema) == {"string"}
        told = f' string="{json.dumps(is_text)}">' if says_type else ""
        begin = f"{markup.key_begin}{name}{markup.key_end}{told}{markup.value_begin}{line}"
        ends = [markup.value_end, *markup.value_stops]
        text = followed(schema, schema)
        content = _text(text, ends) if is_text else _json_without(schema, ends)
        return {"type": "tag", "begin": begin, "content": content, "end": line + markup.value_end}

    return lambda schema: written(schema, write, "\n")


def has_elements(schema: Any) -> bool:
    """Whether the arguments that it describes can be written so."""
    properties: Mapping[str, Any] = schema.get("properties", {}) if _is_plain(schema) else {}
    return _is_plain(schema) and all(
        _NAME.fullmatch(name)
        and (types_of(one, schema) != {"string"} or _is_plain_text(followed(one, schema)))
        for name, one in properties.items()
    )


def sequence(*elements: Format) -> Format:
    return {"type": "sequence", "elements": list(elements)}


def literal(text: str) -> Format:
    return {"type": "const_string", "value": text}


def _with(schema: Any, shared: Mapping[str, Any]) -> Any:
    return {**schema, **shared} if isinstance(schema, Mapping) else schema


def _is_plain(schema: Any) -> bool:
    """Listed properties and nothing that binds them to each other, few of them optional."""
    optional = set(schema.get("properties", ())) - set(schema.get("required", ()))
    references = [one["$ref"] for one in schemas(schema) if "$ref" in one]
    return (
        set(schema) <= _PLAIN
        and len(optional) <= OPTIONAL_AT_MOST
        and set(schema.get("required", ())) <= set(schema.get("properties", ()))
        and all(str(one).startswith(("#/$defs/", "#/definitions/")) for one in references)
    )


def _is_plain_text(schema: Mapping[str, Any]) -> bool:
    """Whether a bare string can be held to it, and cannot end its element."""
    pattern = schema.get("pattern", "")
    is_loose = "<" in pattern or is_wide(pattern)
    is_short = not pattern or not set(_LENGTHS) & set(schema)
    values = _values(schema)
    has_values = values is None or (bool(values) and "<" not in "".join(values))
    return set(schema) <= _TEXT and not is_loose and is_short and has_values


def _values(schema: Mapping[str, Any]) -> list[str] | None:
    """The strings among those that it allows; None where it does not list them."""
    listed = [schema["const"]] if "const" in schema else schema.get("enum")
    return None if listed is None else [one for one in listed if isinstance(one, str)]


def _text(schema: Mapping[str, Any], ends: list[str]) -> Format:
    if values := _values(schema):
        return {"type": "or", "elements": [literal(value) for value in values]}
    if "pattern" in schema:
        pattern = schema["pattern"].removeprefix("^").removesuffix("$")
        return {"type": "regex", "pattern": pattern}
    if any(name in schema for name in _LENGTHS):
        bounds = f"{schema.get('minLength', 0)},{schema.get('maxLength', '')}"
        return {"type": "regex", "pattern": f"[^<]{{{bounds}}}"}
    return {"type": "any_text", "excludes": ends}


def _json_without(schema: Any, ends: list[str]) -> Format:
    """JSON whose strings do not end the element; xgrammar has no words for that and a length."""
    has_lengths = any(set(_LENGTHS) & set(one) for one in schemas(schema))
    return json_format(schema) | ({} if has_lengths else {"excludes": ends})
