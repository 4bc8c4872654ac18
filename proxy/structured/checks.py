"""Whether a finished answer conforms, for what no grammar has held it to.

A Check is data: `of` compiles what the caller wrote, so it is for a sandbox, see `checker`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

import jsonschema_rs
import orjson

from triton_openai.proxy.domain.completion import Answer
from triton_openai.proxy.domain.constraint import Constraint, GuideKind
from triton_openai.proxy.domain.errors import ErrorCode, InvalidRequest, in_short
from triton_openai.proxy.domain.model import ModelCard
from triton_openai.proxy.domain.output import FinishReason
from triton_openai.proxy.structured.unfolding import unfolding

TOLD_AT_MOST = 3  # violations, to the model and to the caller
CHECKED_KINDS = (GuideKind.JSON, GuideKind.JSON_SCHEMA, GuideKind.REGEX)
_ANY_JSON = {"type": ["object", "array"]}


class Check(Protocol):
    """Picklable. `of`: what is wrong with an answer, None where it conforms.

    field: the caller's path of what is checked. wanted: the same, in words for the model.
    """

    @property
    def field(self) -> str: ...

    @property
    def wanted(self) -> str: ...

    def of(self, answer: Answer) -> str | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TextCheck:
    """Of an answer's text."""

    constraint: Constraint

    @property
    def field(self) -> str:
        return self.constraint.field

    @property
    def wanted(self) -> str:
        match self.constraint.kind:
            case GuideKind.REGEX:
                return f"text that this regular expression matches in full: {self.constraint.text}"
            case GuideKind.JSON:
                return "a JSON object or array"
            case _:
                return f"JSON that conforms to this JSON Schema: {self.constraint.text}"

    def of(self, answer: Answer) -> str | None:
        """An answer cut off by the token limit, and one of calls, is not to blame."""
        if answer.reason is FinishReason.LENGTH or (answer.calls and not answer.text.strip()):
            return None
        match self.constraint.kind:
            case GuideKind.REGEX:
                return _violation(
                    compiled_regex(self.constraint.text), answer.text, tells_where=True
                )
            case GuideKind.JSON:
                return schema_violation(_ANY_JSON, answer.text)
            case _:
                return schema_violation(json.loads(self.constraint.text), answer.text)


def guided(constraint: Constraint | None, card: ModelCard) -> Constraint | None:
    """What of it the engine is given: all, or nothing where the answer is checked instead."""
    if constraint is None or "constraint" in card.capabilities:
        return constraint
    return None if constraint.kind in CHECKED_KINDS else constraint


def check_of(constraint: Constraint | None, card: ModelCard) -> Check | None:
    """None where the engine holds the answer to all of it, or nobody asks for more.

    Raises:
        InvalidRequest: an answer must be checked, and cannot be.
    """
    if constraint is None or constraint.kind not in CHECKED_KINDS:
        return None
    is_guided = "constraint" in card.capabilities
    has_more = set(constraint.unenforced) - set(constraint.unchecked)
    if is_guided and not (constraint.is_strict and has_more):
        return None
    if constraint.check_error is not None:
        raise InvalidRequest(
            f"Invalid value for '{constraint.field}': {constraint.check_error}",
            code=ErrorCode.INVALID_PARAMETER,
            param=constraint.field,
        )
    return TextCheck(constraint=constraint)


def unenforced_keywords(constraint: Constraint | None, card: ModelCard) -> tuple[str, ...]:
    """Keywords of a schema that nothing enforces on the answer."""
    if constraint is None or constraint.kind is not GuideKind.JSON_SCHEMA:
        return ()
    if "constraint" not in card.capabilities or constraint.is_strict:
        return constraint.unchecked
    return constraint.unenforced


def schema_violation(schema: Any, text: str) -> str | None:
    """What is wrong with a text that should be JSON for `schema`, with the path of each value."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        return f"it is not JSON: {error}"
    # of a recursive schema the errors would be more than memory holds
    return _violation(compiled(schema), value, tells_where=not unfolding(schema).is_recursive)


def compiled(schema: Any) -> jsonschema_rs.Validator:
    """Raises ValueError: it is no schema."""
    return jsonschema_rs.validator_for(schema, validate_formats=True, offline=True)


def compiled_regex(pattern: str) -> jsonschema_rs.Validator:
    """Raises ValueError: it is no regular expression for a check."""
    return compiled(_regex_schema(pattern))


def _regex_schema(pattern: str) -> dict[str, str]:
    return {"type": "string", "pattern": f"^(?:{pattern})$"}


def _violation(validator: jsonschema_rs.Validator, value: Any, *, tells_where: bool) -> str | None:
    if validator.is_valid(value):
        return None
    if not tells_where:
        return "at $: it does not conform to the schema"
    errors = islice(validator.iter_errors(value), TOLD_AT_MOST)
    return "; ".join(f"at {_path(error)}: {in_short(error.message)}" for error in errors)


def _path(error: jsonschema_rs.ValidationError) -> str:
    """`$.home.numbers[2]`"""
    return "$" + "".join(
        f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.instance_path
    )
