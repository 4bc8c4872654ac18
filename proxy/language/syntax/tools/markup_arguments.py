"""Arguments as elements like those of XML, as a guide writes them: `<parameter=x>1</parameter>`.

Strings stand bare, all other values as JSON, which is how `markup_calls` reads them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from proxy.language.structured.keywords import is_wide
from proxy.language.structured.schema_tree import followed, schemas
from proxy.language.structured.tag_formats import (
    Format,
    const_string,
    either,
    json_format,
    regex,
    tag,
)
from proxy.language.syntax.tools.argument_list import argument_list, has_independent_arguments
from proxy.language.syntax.tools.call_syntax import WriteArguments
from proxy.language.syntax.tools.markup_calls import Markup
from proxy.language.syntax.tools.typed_values import types_of

_LENGTHS = ("minLength", "maxLength")
# A bare string can be held to these keywords, and to no others.
_TEXT_KEYWORDS = {
    "type",
    "enum",
    "const",
    "pattern",
    "title",
    "description",
    "default",
    "format",
    *_LENGTHS,
}
_NAME = re.compile(r"[^<>\"\s]+")


def markup_arguments(markup: Markup, *, says_type: bool = False) -> WriteArguments:
    """`says_type`: a parameter's tag says whether its value is a string."""
    line = "\n" if markup.has_lines else ""

    def write(name: str, schema: Any) -> Format:
        is_text = types_of(schema, schema) == {"string"}
        type_mark = f' string="{json.dumps(is_text)}">' if says_type else ""
        begin = f"{markup.key_begin}{name}{markup.key_end}{type_mark}{markup.value_begin}{line}"
        ends = [markup.value_end, *markup.value_stops]
        text = followed(schema, schema)
        content = _text(text, ends) if is_text else _json_without(schema, ends)
        return tag(begin, content, line + markup.value_end)

    return lambda schema: argument_list(schema, write, "\n")


def can_be_elements(schema: Any) -> bool:
    """Whether a guide can hold elements to this schema of a tool's arguments."""
    return has_independent_arguments(schema) and all(
        _NAME.fullmatch(name)
        and (types_of(one, schema) != {"string"} or _is_plain_text(followed(one, schema)))
        for name, one in schema.get("properties", {}).items()
    )


def _is_plain_text(schema: Mapping[str, Any]) -> bool:
    """Whether a bare string can be held to the schema, and cannot end its element."""
    pattern = schema.get("pattern", "")
    is_loose = "<" in pattern or is_wide(pattern)
    is_short = not pattern or not set(_LENGTHS) & set(schema)
    values = _values(schema)
    has_values = values is None or (bool(values) and "<" not in "".join(values))
    return set(schema) <= _TEXT_KEYWORDS and not is_loose and is_short and has_values


def _values(schema: Mapping[str, Any]) -> list[str] | None:
    """The strings among the values that the schema lists; None where it lists no values."""
    listed = [schema["const"]] if "const" in schema else schema.get("enum")
    return None if listed is None else [one for one in listed if isinstance(one, str)]


def _text(schema: Mapping[str, Any], ends: list[str]) -> Format:
    if values := _values(schema):
        return either(*map(const_string, values))
    if "pattern" in schema:
        return regex(schema["pattern"].removeprefix("^").removesuffix("$"))
    if any(name in schema for name in _LENGTHS):
        bounds = f"{schema.get('minLength', 0)},{schema.get('maxLength', '')}"
        return regex(f"[^<]{{{bounds}}}")
    return {"type": "any_text", "excludes": ends}


def _json_without(schema: Any, ends: list[str]) -> Format:
    """JSON whose strings do not end the element; xgrammar cannot combine that with a length."""
    has_lengths = any(set(_LENGTHS) & set(one) for one in schemas(schema))
    return json_format(schema) | ({} if has_lengths else {"excludes": ends})
