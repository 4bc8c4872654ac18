"""Formats, the parts of a structural tag in xgrammar's words: how guides of ours are put together.

Called by `structural_tags` and by the guides for tool calls and reasoning.
"""

from __future__ import annotations

import json
from typing import Any

from typing_extensions import assert_never

from proxy.domain.constraint import Constraint, GuideKind
from proxy.language.structured.schema import as_json

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


def tag(begin: str, content: Format, end: str) -> Format:
    return {"type": "tag", "begin": begin, "content": content, "end": end}


def json_format(schema: Any) -> Format:
    """Text that is JSON for this schema."""
    return {
        "type": "json_schema",
        "json_schema": schema,
        "max_whitespace_cnt": WHITESPACE_AT_MOST,
    }


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
        InvalidSchema: the format holds a value that JSON cannot represent.
    """
    text = as_json({"type": "structural_tag", "format": content}, field)
    return Constraint(GuideKind.STRUCTURAL_TAG, text, field)
