"""The keywords of a JSON Schema that the engine's grammar does not enforce.

Found by experiment with xgrammar 0.2.9. docs/guided_decoding.md lists the same, and tests compare
both with what the grammar permits.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from math import gcd
from typing import Any

import jsonschema_rs

from proxy.language.structured.schema import Schema, bounds, followed, is_pointer, schemas

_ANNOTATIONS = ("contentEncoding", "contentMediaType", "contentSchema")
# Never enforced, wherever they stand.
IGNORED = (
    "uniqueItems",
    "not",
    "if",
    "dependentRequired",
    "dependentSchemas",
    "dependencies",
    "$dynamicRef",
    "$recursiveRef",
    "contains",
    "minContains",
    "maxContains",
    *_ANNOTATIONS,
)
FORMATS = frozenset(
    {
        "date",
        "time",
        "date-time",
        "duration",
        "ipv4",
        "ipv6",
        "uri",
        "uri-reference",
        "uri-template",
        "uuid",
        "json-pointer",
        "relative-json-pointer",
    }
)
_WITHOUT_EFFECT = (("uniqueItems", False),)
# The grammar has these, but not the limits of their lengths.
_LONG_FORMATS = frozenset({"email", "hostname"})
# Further formats that the check of an answer knows.
_CHECKED_FORMATS = _LONG_FORMATS | {"regex", "idn-email", "idn-hostname", "iri", "iri-reference"}
# Where a schema has one of these, the grammar ignores all else; of several, the first counts.
_ALONE = ("$ref", "const", "enum", "anyOf", "oneOf", "allOf")
_TYPED = frozenset(
    {
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "multipleOf",
        "minLength",
        "maxLength",
        "pattern",
        "format",
        "items",
        "prefixItems",
        "unevaluatedItems",
        "minItems",
        "maxItems",
        "properties",
        "patternProperties",
        "additionalProperties",
        "unevaluatedProperties",
        "required",
        "propertyNames",
        "minProperties",
        "maxProperties",
    }
)
_ASSERTIONS = _TYPED | {"type", *_ALONE}
# With one of these, a schema without a type is one of objects, or of arrays.
_MEANS_A_TYPE = frozenset({"properties", "additionalProperties", "items", "prefixItems"})
# Other listed names are not kept apart from further ones, which may also come twice.
_PLAIN_NAME = re.compile(r"[ !#-\[\]-~]*")
_MORE = ("additionalProperties", "unevaluatedProperties")
# A pattern that may match a control character, which JSON strings cannot contain, or that has an
# escape which xgrammar reads as the letter itself.
_LOOSE = re.compile(r"(?<!\\)(?:\\\\)*(?:\.|\[\^|\\[sSDW]|\\[Az]|\\x\{)")
# A range over the surrogates holds them, too, and they are no text.
_LOOSE_IN_CLASS = re.compile(r"\\[sSDW]|[^\ue000-\U0010ffff]-[\ue000-\U0010ffff]")
# Characters that JSON strings contain only as escapes, quotation marks and backslashes included.
_RAW = re.compile(
    r"[\"\x00-\x1f]|\\(?:[\\nrtfv0c]|x(?:[01][0-9a-fA-F]|22|5[cC])|u00(?:[01][0-9a-fA-F]|22|5[cC]))"
)
# An unclosed class ends with the pattern: otherwise the search would start at each of its brackets.
_ESCAPE_OR_CLASS = re.compile(r"\\.|\[(?:\\.|[^\]\\])*(?:\]|\\?\Z)", re.DOTALL)
# The grammar ignores look-around, and an anchor that is not at the edge of a branch.
_IGNORED_PARTS = re.compile(r"\(\?<?[=!]|(?<!^)(?<![|(])(?<!\(\?:)\^|\$(?![|)]|$)")


def unenforced(schema: Schema) -> tuple[str, ...]:
    """Their names, each once. Another part of the schema may enforce them all the same."""
    found = [name for one in schemas(schema) for name in _loose(one, schema)]
    return tuple(dict.fromkeys(found))


def uncheckable(schema: Schema) -> tuple[str, ...]:
    """The keywords that neither the grammar nor the check of an answer enforces."""
    found = [name for one in schemas(schema) for name in _ANNOTATIONS if name in one]
    if any(one.get("format", "uuid") not in FORMATS | _CHECKED_FORMATS for one in schemas(schema)):
        found.append("format")
    return tuple(dict.fromkeys(found))


def _loose(one: Schema, root: Schema) -> Iterator[str]:
    yield from (
        name for name in IGNORED if name in one and (name, one[name]) not in _WITHOUT_EFFECT
    )
    alone = next((name for name in _ALONE if name in one), None)
    if alone is not None:
        yield from _next_to(alone, one)
    match alone:
        case "$ref" if not is_pointer(one["$ref"]):
            yield "$ref"
        case "allOf" if len(one["allOf"]) > 1:
            yield "allOf"
        case "oneOf" if not are_disjoint(one["oneOf"], root):
            yield "oneOf"
        case None:
            yield from _loose_of_type(one)


def _next_to(alone: str, one: Schema) -> Iterator[str]:
    """The assertions next to the keyword that counts alone, except a `type` that all listed values
    have.
    """
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
    if "multipleOf" in one and not (types <= _WITH_MULTIPLES and _has_multiples(one)):
        yield "multipleOf"
    for name in ("exclusiveMinimum", "exclusiveMaximum"):
        if "number" in types and abs(one.get(name, 0)) >= 2**33:  # a double loses 6 decimals
            yield name
    has_format = one.get("format") in FORMATS | _LONG_FORMATS
    if "pattern" in one or has_format:
        yield from (name for name in ("minLength", "maxLength") if name in one)
    if "pattern" in one and (has_format or _is_loose(one["pattern"])):
        yield "pattern"
    if "patternProperties" in one and _has_competing_rules(one):
        yield "patternProperties"
    if one.get("properties"):
        more = [name for name in _MORE if one.get(name, False) is not False]
        if not all(map(_PLAIN_NAME.fullmatch, one["properties"])):
            yield from more
        if (more or "patternProperties" in one) and one.get("minProperties", 0) > 1:
            yield "minProperties"
    if "format" in one and one["format"] not in FORMATS:
        yield "format"
    if "propertyNames" in one and one.get("properties"):
        yield "propertyNames"


def _is_loose(pattern: str) -> bool:
    plain = _ESCAPE_OR_CLASS.sub("x", pattern)
    return any((is_wide(pattern), _RAW.search(pattern), _IGNORED_PARTS.search(plain)))


def is_wide(pattern: str) -> bool:
    """Whether it may match characters that a JSON string cannot contain, see `_LOOSE`."""
    in_classes = (piece[at:] for piece in pattern.split("]") if (at := piece.find("[")) >= 0)
    return bool(_LOOSE.search(pattern)) or any(map(_LOOSE_IN_CLASS.search, in_classes))


_WITH_MULTIPLES = frozenset({"integer", "null", "boolean", "string"})
_BEYOND, _OPEN_DIGITS, _STATES_AT_MOST = 10**24, 16, 512


def _has_multiples(one: Schema) -> bool:
    """Whether the grammar has only an integer's multiples; as in the engine's integers.py."""
    ends = [bound for bound in bounds(one) if bound is not None]
    step = Fraction(str(one["multipleOf"])).numerator
    if not ends and step == one["multipleOf"] <= 1024:
        return True  # in xgrammar itself
    most = max(map(abs, (step, *ends)))
    if most >= _BEYOND:
        return False
    digits = len(str(most)) if len(ends) == 2 else max(_OPEN_DIGITS, len(str(most)) + 1)
    states = sum(
        min(10 ** (digits - left), min(10**left, step) // gcd(10**left, step))
        for left in range(digits)
    )
    return bool(states <= _STATES_AT_MOST)


def _has_competing_rules(one: Schema) -> bool:
    """Whether the grammar may apply the wrong rule to a property: that of a listed property, of a
    pattern, or for all further properties.
    """
    patterns = one["patternProperties"]
    if any(map(_is_loose, patterns)):
        return True
    listed = dict.fromkeys(one.get("properties", ()))
    takes_more = any(one.get(name, False) is not False for name in _MORE)
    none_listed = {"patternProperties": dict.fromkeys(patterns, False)}
    return bool(listed) and (takes_more or not jsonschema_rs.is_valid(none_listed, listed))


PAIRS_AT_MOST = 64  # branches that are compared in pairs; more need one fact that separates all


@dataclass(frozen=True, slots=True)
class _Branch:
    """values: those that it lists, None if it lists none. types: empty if it names none; with
    `number` also `integer`.
    """

    schema: Schema
    values: frozenset[Hashable] | None
    types: frozenset[str]

    @property
    def is_object(self) -> bool:
        return self.types == {"object"}

    @property
    def required(self) -> dict[str, Any]:
        """The schemas of its required properties, where they are objects."""
        properties = self.schema.get("properties", {})
        return {
            name: properties[name]
            for name in self.schema.get("required", ())
            if isinstance(properties.get(name), dict)
        }


def are_disjoint(branches: Sequence[Any], root: Schema) -> bool:
    return _all_exclude_each_other([_branch(followed(branch, root)) for branch in branches])


def _all_exclude_each_other(branches: Sequence[_Branch]) -> bool:
    if len(branches) <= PAIRS_AT_MOST:
        return all(_exclude_each_other(one, other) for one, other in combinations(branches, 2))
    return _share_no_value(branches) or _share_no_type(branches) or _has_discriminator(branches)


def _exclude_each_other(one: _Branch, other: _Branch) -> bool:
    if one.values is not None and other.values is not None:
        return one.values.isdisjoint(other.values)
    if one.types and other.types and not one.types & other.types:
        return True
    if not (one.is_object and other.is_object):
        return False
    ours, theirs = one.required, other.required
    return any(
        _exclude_each_other(_branch(schema), _branch(theirs[name]))
        for name, schema in ours.items()
        if name in theirs
    )


def _share_no_value(branches: Sequence[_Branch]) -> bool:
    seen: set[Hashable] = set()
    for branch in branches:
        if branch.values is None or not seen.isdisjoint(branch.values):
            return False
        seen |= branch.values
    return True


def _share_no_type(branches: Sequence[_Branch]) -> bool:
    seen: set[str] = set()
    for branch in branches:
        if not branch.types or seen & branch.types:
            return False
        seen |= branch.types
    return True


def _has_discriminator(branches: Sequence[_Branch]) -> bool:
    """Whether they all require one property, with disjoint schemas for it."""
    if not all(branch.is_object for branch in branches):
        return False
    required = [branch.required for branch in branches]
    shared = set(required[0]).intersection(*required[1:])
    return any(_all_exclude_each_other([_branch(one[name]) for one in required]) for name in shared)


def _branch(schema: Schema) -> _Branch:
    listed = [schema["const"]] if "const" in schema else schema.get("enum")
    values = None if listed is None else frozenset(map(_key, listed))
    named = schema.get("type", ())
    types = {named} if isinstance(named, str) else set(named)
    more = {"integer"} if "number" in types else set()
    return _Branch(schema, values, frozenset(types | more))


def _key(value: Any) -> Hashable:
    """Equal keys for equal JSON values: for `1` and `1.0`, but not for `1` and `true`."""
    if isinstance(value, list):
        return ("array", *map(_key, value))
    if isinstance(value, dict):
        return frozenset((name, _key(one)) for name, one in value.items())
    return isinstance(value, bool), value
