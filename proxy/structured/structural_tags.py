"""A caller's structural tag: xgrammar's, or the older one of `structures` and `triggers`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from typing_extensions import assert_never

from triton_openai.proxy.domain.constraint import Constraint, GuideKind
from triton_openai.proxy.domain.errors import ErrorCode, InvalidRequest
from triton_openai.proxy.structured.schema import SchemaLimits, as_json, check_depth, parsed
from triton_openai.proxy.structured.schema import checked as checked_schema

WHITESPACE_AT_MOST = 10  # between two JSON tokens, as the engine has it for a schema of its own
_WITH_SCHEMA = frozenset({"json_schema", "qwen_xml_parameter"})
Format = dict[str, Any]


def checked(value: Any, field: str, limits: SchemaLimits) -> Format:
    """Its `format`, every schema in it checked, and the white space of JSON bounded.

    Raises:
        InvalidSchema: one of them is none, or the value is no JSON object, or nested deep.
        InvalidRequest: it has neither `format` nor `structures` and `triggers`.
    """
    given = parsed(value, field)
    check_depth(given, field, 2 * limits.depth)  # formats, and schemas in them
    if "format" in given:
        tag = given["format"]
    elif {"structures", "triggers"} <= set(given):
        tag = _triggered(given, field)
    else:
        raise InvalidRequest(
            f"Invalid value for '{field}': a structural tag has 'format', or 'structures' and "
            "'triggers'",
            code=ErrorCode.INVALID_PARAMETER,
            param=field,
        )
    for schema in _schemas(tag):
        if not isinstance(schema, bool):
            checked_schema(schema, field, limits)
    found: Format = _bounded(tag)
    return found


def _bounded(given: Any) -> Any:
    """Where it does not say how much white space JSON may have, as much as in `json_format`."""
    if isinstance(given, list):
        return [_bounded(one) for one in given]
    if not isinstance(given, Mapping):
        return given
    if given.get("type") == "json_schema":
        return {"max_whitespace_cnt": WHITESPACE_AT_MOST, **given}
    return {key: _bounded(value) for key, value in given.items()}


def json_format(schema: Any) -> Format:
    """Text that is JSON for this schema."""
    return {
        "type": "json_schema",
        "json_schema": schema,
        "max_whitespace_cnt": WHITESPACE_AT_MOST,
    }


def guide(tag: Format, field: str) -> Constraint:
    """For the engine. `field`: the caller's path of what asked for it.

    Raises:
        InvalidSchema: the tag is no JSON.
    """
    text = as_json({"type": "structural_tag", "format": tag}, field)
    return Constraint(GuideKind.STRUCTURAL_TAG, text, field)


def format_of(constraint: Constraint) -> Format:
    """What it asks for, as a part of a structural tag."""
    match constraint.kind:
        case GuideKind.JSON:
            return json_format({"type": ["object", "array"]})
        case GuideKind.JSON_SCHEMA:
            return json_format(json.loads(constraint.text))
        case GuideKind.REGEX:
            return {"type": "regex", "pattern": constraint.text}
        case GuideKind.GRAMMAR:
            return {"type": "grammar", "grammar": constraint.text}
        case GuideKind.STRUCTURAL_TAG:
            found: Format = json.loads(constraint.text)["format"]
            return found
        case _:
            assert_never(constraint.kind)


def _triggered(given: Mapping[str, Any], field: str) -> Format:
    try:
        tags = [
            {
                "type": "tag",
                "begin": one["begin"],
                "content": json_format(one["schema"]),
                "end": one["end"],
            }
            for one in given["structures"]
        ]
    except (KeyError, TypeError) as error:
        raise InvalidRequest(
            f"Invalid value for '{field}': each of its structures has 'begin', 'schema' and 'end'",
            code=ErrorCode.INVALID_PARAMETER,
            param=field,
        ) from error
    return {"type": "triggered_tags", "triggers": given["triggers"], "tags": tags}


def _schemas(given: Any) -> Iterator[Any]:
    """The schemas in a format, however deep; what is wrong otherwise xgrammar says."""
    waiting = [given]
    while waiting:
        one = waiting.pop()
        if isinstance(one, list):
            waiting += one
        elif isinstance(one, Mapping):
            if one.get("type") in _WITH_SCHEMA and "json_schema" in one:
                yield one["json_schema"]
                waiting += [value for key, value in one.items() if key != "json_schema"]
            else:
                waiting += one.values()
