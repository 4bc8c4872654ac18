"""Which keywords of a JSON Schema the engine's grammar does not hold.

Found by experiment with xgrammar 0.2.8; docs/guided_decoding.md lists the same, and tests compare
both with what the grammar lets through.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import jsonschema_rs

from triton_openai.proxy.structured.disjoint import are_disjoint
from triton_openai.proxy.structured.schema_tree import Schema, is_pointer, schemas

_ANNOTATIONS = ("contentEncoding", "contentMediaType", "contentSchema")
# Nothing of them is enforced, wherever they stand.
IGNORED = (
    *("uniqueItems", "not", "if", "dependentRequired", "dependentSchemas", "dependencies"),
    *("$dynamicRef", "$recursiveRef", "contains", "minContains", "maxContains"),
    *_ANNOTATIONS,
)
FORMATS = frozenset(
    {
        *("date", "time", "date-time", "duration", "email", "hostname", "ipv4", "ipv6"),
        *("uri", "uri-reference", "uri-template", "uuid", "json-pointer"),
        "relative-json-pointer",
    }
)
_SILENT = (("uniqueItems", False),)
# What the check of an answer knows beside them.
_CHECKED_FORMATS = frozenset({"regex", "idn-email", "idn-hostname", "iri", "iri-reference"})
# Where one of these stands, it alone counts; the first of them, where there are several.
_ALONE = ("$ref", "const", "enum", "anyOf", "oneOf", "allOf")
_TYPED = frozenset(
    {
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
        *("minLength", "maxLength", "pattern", "format"),
        *("items", "prefixItems", "unevaluatedItems", "minItems", "maxItems"),
        *("properties", "patternProperties", "additionalProperties", "unevaluatedProperties"),
        *("required", "propertyNames", "minProperties", "maxProperties"),
    }
)
_ASSERTIONS = _TYPED | {"type", *_ALONE}
# What makes a schema without a type one of objects, or of arrays.
_MEANS_A_TYPE = frozenset({"properties", "additionalProperties", "items", "prefixItems"})
_MORE = ("additionalProperties", "unevaluatedProperties")
# A pattern that may match a control character, which JSON has no place for, or has an escape that
# xgrammar takes for the letter itself.
_LOOSE = re.compile(r"(?<!\\)(?:\\\\)*(?:\.|\[\^|\\[sSDW]|\\[Az]|\\x\{)")
_LOOSE_IN_CLASS = re.compile(r"\\[sSDW]")
# What a string has as an escape only, quotation marks and backslashes with it, written raw.
_RAW = re.compile(
    r"[\"\x00-\x1f]|\\(?:[\\nrtfv0c]|x(?:[01][0-9a-fA-F]|22|5[cC])|u00(?:[01][0-9a-fA-F]|22|5[cC]))"
)
# A class that is not closed ends with the pattern: else each of its brackets would be tried.
_ESCAPE_OR_CLASS = re.compile(r"\\.|\[(?:\\.|[^\]\\])*(?:\]|\\?\Z)", re.DOTALL)
# Passed over: a look at what is around, and an anchor that is not at the edge of a branch.
_PASSED_OVER = re.compile(r"\(\?<?[=!]|(?<!^)(?<![|(])(?<!\(\?:)\^|\$(?![|)]|$)")


def unenforced(schema: Schema) -> tuple[str, ...]:
    """Their names, each once; what a schema has elsewhere may enforce them all the same."""
    found = [name for one in schemas(schema) for name in _loose(one, schema)]
    return tuple(dict.fromkeys(found))


def uncheckable(schema: Schema) -> tuple[str, ...]:
    """Of all keywords those that the check of an answer passes over, too."""
    found = [name for one in schemas(schema) for name in _ANNOTATIONS if name in one]
    if any(one.get("format", "uuid") not in FORMATS | _CHECKED_FORMATS for one in schemas(schema)):
        found.append("format")
    return tuple(dict.fromkeys(found))


def _loose(one: Schema, root: Schema) -> Iterator[str]:
    yield from (name for name in IGNORED if name in one and (name, one[name]) not in _SILENT)
    alone = next((name for name in _ALONE if name in one), None)
    if alone is not None:
        yield from _beside(alone, one)
    match alone:
        case "$ref" if not is_pointer(one["$ref"]):
            yield "$ref"
        case "allOf" if len(one["allOf"]) > 1:
            yield "allOf"
        case "oneOf" if not are_disjoint(one["oneOf"], root):
            yield "oneOf"
        case None:
            yield from _loose_of_type(one)


def _beside(alone: str, one: Schema) -> Iterator[str]:
    """The other assertions; a `type` that all values of an enum have says nothing."""
    for name in one:
        if name == alone or name not in _ASSERTIONS:
            continue
        if name == "type" and alone in ("const", "enum"):
            values = one["enum"] if alone == "enum" else [one["const"]]
            if jsonschema_rs.is_valid({"items": {"type": one["type"]}}, values):
                continue
        yield name


def _loose_of_type(one: Schema) -> Iterator[str]:
    if "type" not in one and not _MEANS_A_TYPE & set(one):
        yield from (name for name in one if name in _TYPED)
        return
    types = one.get("type", ())
    types = {types} if isinstance(types, str) else set(types)
    if set(one.get("required", ())) - set(one.get("properties", ())):
        yield "required"
    if "multipleOf" in one and (types & {"number"} or one["multipleOf"] % 1 or _is_half_open(one)):
        yield "multipleOf"
    has_format = one.get("format") in FORMATS
    if "pattern" in one or has_format:
        yield from (name for name in ("minLength", "maxLength") if name in one)
    if "pattern" in one and (has_format or _is_loose(one["pattern"])):
        yield "pattern"
    if "patternProperties" in one and _is_told_otherwise(one):
        yield "patternProperties"
    if "format" in one and one["format"] not in FORMATS:
        yield "format"
    if "propertyNames" in one and one.get("properties"):
        yield "propertyNames"


def _is_loose(pattern: str) -> bool:
    plain = _ESCAPE_OR_CLASS.sub("x", pattern)
    return any((is_wide(pattern), _RAW.search(pattern), _PASSED_OVER.search(plain)))


def is_wide(pattern: str) -> bool:
    """Whether it may match what JSON has no place for in a string, see `_LOOSE`."""
    in_classes = (piece[at:] for piece in pattern.split("]") if (at := piece.find("[")) >= 0)
    return bool(_LOOSE.search(pattern)) or any(map(_LOOSE_IN_CLASS.search, in_classes))


def _is_half_open(one: Schema) -> bool:
    """An integer with a bound below, or above, and not both."""
    below, above = {"minimum", "exclusiveMinimum"}, {"maximum", "exclusiveMaximum"}
    return bool(below & set(one)) is not bool(above & set(one))


def _is_told_otherwise(one: Schema) -> bool:
    """Beside listed properties, one of them or a name that a pattern describes may come as another
    of these rules has it.
    """
    patterns = one["patternProperties"]
    if any(map(_is_loose, patterns)):
        return True
    listed = dict.fromkeys(one.get("properties", ()))
    takes_more = any(one.get(name, False) is not False for name in _MORE)
    none_listed = {"patternProperties": dict.fromkeys(patterns, False)}
    return bool(listed) and (takes_more or not jsonschema_rs.is_valid(none_listed, listed))
