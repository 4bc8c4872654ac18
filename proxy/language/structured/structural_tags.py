"""Formats, the parts of a structural tag in xgrammar's words: how guides of ours are put together.

Called by `structural_tags` and by the guides for tool calls and reasoning.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from typing_extensions import assert_never

from proxy.domain.constraint import Constraint, GuideKind
from proxy.domain.errors import InvalidRequest
from proxy.domain.tools import ToolGrammar
from proxy.language.structured.escaped_grammar import Escapes
from proxy.language.structured.schema import SchemaLimits, as_json, check_depth, parsed
from proxy.language.structured.schema import checked as checked_schema

WHITESPACE_AT_MOST = 10  # between two JSON tokens, as the engine allows for a plain JSON Schema
Format = dict[str, Any]


def const_string(text: str) -> Format:
    return {"type": "const_string", "value": text}


def regex(pattern: str) -> Format:
    return {"type": "regex", "pattern": pattern}


def sequence(*elements: Format) -> Format:
    return {"type": "sequence", "elements": list(elements)}


def either(*elements: Format) -> Format:
    return {"type": "or", "elements": list(elements)}


def optional(content: Format) -> Format:
    return {"type": "optional", "content": content}


def repeat(content: Format, least: int, most: int) -> Format:
    """`most`: -1 for no limit."""
    return {"type": "repeat", "min": least, "max": most, "content": content}


def tag(begin: str, content: Format, end: str) -> Format:
    return {"type": "tag", "begin": begin, "content": content, "end": end}


def json_format(schema: Any) -> Format:
    """Text that is JSON for this schema."""
    return {
        "type": "json_schema",
        "json_schema": schema,
        "max_whitespace_cnt": WHITESPACE_AT_MOST,
    }


def grammar_format(grammar: ToolGrammar, escapes: Escapes) -> Format:
    """The format of the escaped texts that conform to the grammar.

    Raises:
        ValueError: it is invalid, or means what no grammar of ours expresses.
    """
    if grammar.syntax == "regex":
        return regex(escapes.pattern(grammar.definition))
    from proxy.language.structured import lark  # only the sandbox needs its library

    return {"type": "grammar", "grammar": lark.to_ebnf(grammar.definition, escapes)}


def format_of(constraint: Constraint) -> Format:
    """The constraint as a part of a structural tag; the inverse of `structural_tag`."""
    match constraint.kind:
        case GuideKind.JSON:
            return json_format({"type": ["object", "array"]})
        case GuideKind.JSON_SCHEMA:
            return json_format(json.loads(constraint.text))
        case GuideKind.REGEX:
            return regex(constraint.text)
        case GuideKind.GRAMMAR:
            return {"type": "grammar", "grammar": constraint.text}
        case GuideKind.STRUCTURAL_TAG:
            found: Format = json.loads(constraint.text)["format"]
            return found
        case _:
            assert_never(constraint.kind)


def structural_tag(content: Format, field: str) -> Constraint:
    """A structural tag for the engine. `field`: the request field that caused it.

    Raises:
        RequestError: the format holds a value that JSON cannot represent.
    """
    text = as_json({"type": "structural_tag", "format": content}, field)
    return Constraint(GuideKind.STRUCTURAL_TAG, text, field)


_TYPES_WITH_SCHEMA = ("json_schema", "qwen_xml_parameter")


def checked(value: Any, field: str, limits: SchemaLimits) -> Format:
    """The tag's `format`, with every schema in it checked and the white space of JSON bounded.

    Raises:
        RequestError: the value is not a JSON object, is nested too deeply, or holds an invalid
            schema.
        InvalidRequest: it has neither `format` nor `structures` and `triggers`.
    """
    given = parsed(value, field)
    check_depth(given, field, 2 * limits.depth)  # formats, and schemas in them
    if "format" in given:
        content = given["format"]
    elif {"structures", "triggers"} <= set(given):
        content = _triggered(given, field)
    else:
        raise InvalidRequest(
            f"Invalid value for '{field}': a structural tag has 'format', or 'structures' and "
            "'triggers'",
            param=field,
        )
    found: Format = _checked(content, field, limits)
    return found


def _checked(given: Any, field: str, limits: SchemaLimits) -> Any:
    """Checks each schema, and limits the white space between JSON tokens where the caller's format
    sets no limit. xgrammar reports all other mistakes.
    """
    if isinstance(given, list):
        return [_checked(one, field, limits) for one in given]
    if not isinstance(given, Mapping):
        return given
    found = dict(given)
    for key, one in given.items():
        if key == "json_schema" and given.get("type") in _TYPES_WITH_SCHEMA:
            is_schema = not isinstance(one, bool)
            found[key] = json.loads(checked_schema(one, field, limits)) if is_schema else one
        else:
            found[key] = _checked(one, field, limits)
    if given.get("type") == "json_schema":
        found.setdefault("max_whitespace_cnt", WHITESPACE_AT_MOST)
    return found


def _triggered(given: Mapping[str, Any], field: str) -> Format:
    try:
        tags = [
            tag(one["begin"], json_format(one["schema"]), one["end"]) for one in given["structures"]
        ]
    except (KeyError, TypeError) as error:
        raise InvalidRequest(
            f"Invalid value for '{field}': each of its structures has 'begin', 'schema' and 'end'",
            param=field,
        ) from error
    return {"type": "triggered_tags", "triggers": given["triggers"], "tags": tags}
