"""What callers ask for -> one Constraint. Called by the adapters in api/."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Any

from typing_extensions import assert_never

from proxy.domain.constraint import Constraint, GuideKind
from proxy.domain.errors import InvalidRequest
from proxy.structured import grammar_text, structural_tags
from proxy.structured.schema import SchemaLimits, checked

ANY_OBJECT = '{"type": "object"}'
_SPECIAL = re.compile(r"[\\.^$*+?{}\[\]()|/-]")
_CONTROL = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


class Form(Enum):
    """What the value of an Asked is."""

    JSON_OBJECT = "nothing"
    SCHEMA = "a JSON Schema, or the text of one"
    REGEX = "a regular expression"
    CHOICE = "a list of texts"
    GRAMMAR = "the text of a grammar, in EBNF or Lark's syntax"
    STRUCTURAL_TAG = "a structural tag, or the text of one"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """`field`: the caller's path of it. is_strict: the answer must conform in all."""

    field: str
    form: Form
    value: Any = None
    is_strict: bool = False


def constraint(asked: Asked, limits: SchemaLimits) -> Constraint:
    """What the engine is given.

    Raises:
        InvalidSchema: a schema is none, or more than `limits` allows.
        InvalidRequest: the value is malformed otherwise.
    """
    field, value = asked.field, asked.value
    match asked.form:
        case Form.JSON_OBJECT:
            return Constraint(GuideKind.JSON_SCHEMA, ANY_OBJECT, field)
        case Form.SCHEMA:
            text = checked(value, field, limits)
            return Constraint(GuideKind.JSON_SCHEMA, text, field, asked.is_strict)
        case Form.REGEX:
            return Constraint(GuideKind.REGEX, value, field)
        case Form.CHOICE:
            return Constraint(GuideKind.REGEX, "|".join(map(_literally, value)), field)
        case Form.GRAMMAR:
            return Constraint(GuideKind.GRAMMAR, _ebnf(value, field), field)
        case Form.STRUCTURAL_TAG:
            return structural_tags.guide(structural_tags.checked(value, field, limits), field)
        case _:
            assert_never(asked.form)


def _literally(text: str) -> str:
    """A regular expression for this text alone, without a group."""
    escaped = _SPECIAL.sub(r"\\\g<0>", text)
    return "".join(_CONTROL.get(char, char) for char in escaped)


def _ebnf(text: str, field: str) -> str:
    try:
        return grammar_text.as_ebnf(text)
    except grammar_text.Untranslatable as error:
        raise InvalidRequest(
            f"Invalid value for '{field}': this Lark grammar cannot be brought to EBNF: {error}",
            code="invalid_parameter",
            param=field,
        ) from error
