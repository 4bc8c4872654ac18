"""Whether a finished answer conforms, for what no grammar has held it to."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any, Protocol

import jsonschema_rs
import orjson

from proxy.domain.completion import Answer
from proxy.domain.constraint import Constraint, GuideKind
from proxy.domain.errors import InvalidRequest, in_short
from proxy.domain.model import ModelCard
from proxy.domain.output import FinishReason
from proxy.structured.keywords import uncheckable, unenforced
from proxy.structured.unfolding import unfolding

TOLD_AT_MOST = 3  # violations, to the model and to the caller
CHECKED_KINDS = (GuideKind.JSON, GuideKind.JSON_SCHEMA, GuideKind.REGEX)


class Check(Protocol):
    """`of`: what is wrong with an answer, None where it conforms.

    field: the caller's path of what is checked. wanted: the same, in words for the model.
    """

    @property
    def field(self) -> str: ...

    @property
    def wanted(self) -> str: ...

    def of(self, answer: Answer) -> str | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TextCheck:
    """field: the caller's path of what is checked. wanted: the same, in words for the model.

    violation: what is wrong with an answer's text, None where it conforms.
    """

    field: str
    wanted: str
    violation: Callable[[str], str | None]

    def of(self, answer: Answer) -> str | None:
        """An answer cut off by the token limit, and one of calls, is not to blame."""
        if answer.reason is FinishReason.LENGTH or (answer.calls and not answer.text.strip()):
            return None
        return self.violation(answer.text)


def guided(constraint: Constraint | None, card: ModelCard) -> Constraint | None:
    """What of it the engine is given: all, or nothing where the answer is checked instead."""
    if constraint is None or "constraint" in card.capabilities:
        return constraint
    return None if constraint.kind in CHECKED_KINDS else constraint


def check_of(constraint: Constraint | None, card: ModelCard) -> Check | None:
    """None where the engine holds the answer to all of it, or nobody asks for more.

    Raises:
        InvalidRequest: the constraint cannot be checked, being wrong.
    """
    if constraint is None or constraint.kind not in CHECKED_KINDS:
        return None
    if "constraint" not in card.capabilities:
        return _check(constraint)
    if not constraint.is_strict or not (
        set(unenforced_in(constraint)) - set(_unchecked(constraint))
    ):
        return None
    return _check(constraint)


def untold(constraint: Constraint | None, card: ModelCard) -> tuple[str, ...]:
    """Keywords of a schema that nothing holds the answer to."""
    if constraint is None or constraint.kind is not GuideKind.JSON_SCHEMA:
        return ()
    if "constraint" not in card.capabilities or constraint.is_strict:
        return _unchecked(constraint)
    return unenforced_in(constraint)


@lru_cache(maxsize=64)
def unenforced_in(constraint: Constraint) -> tuple[str, ...]:
    return unenforced(json.loads(constraint.text))


@lru_cache(maxsize=64)
def _unchecked(constraint: Constraint) -> tuple[str, ...]:
    return uncheckable(json.loads(constraint.text))


@lru_cache(maxsize=64)
def _check(constraint: Constraint) -> Check:
    match constraint.kind:
        case GuideKind.REGEX:
            wanted = f"text that this regular expression matches in full: {constraint.text}"
            schema: Any = {"type": "string", "pattern": f"^(?:{constraint.text})$"}
        case GuideKind.JSON:
            wanted, schema = "a JSON object or array", {"type": ["object", "array"]}
        case _:
            wanted = f"JSON that conforms to this JSON Schema: {constraint.text}"
            schema = json.loads(constraint.text)
    try:
        is_json = constraint.kind is not GuideKind.REGEX
        violation = schema_violation(schema, is_json=is_json)
    except ValueError as error:
        raise InvalidRequest(
            f"Invalid value for '{constraint.field}': {error}",
            code="invalid_parameter",
            param=constraint.field,
        ) from error
    return TextCheck(field=constraint.field, wanted=wanted, violation=violation)


def schema_violation(schema: Any, *, is_json: bool = True) -> Callable[[str], str | None]:
    """What is wrong with a text, with the path of each value that is; None where nothing is.

    is_json: the text is JSON, else the value itself.

    Raises:
        ValueError: the schema is none.
    """
    validator = jsonschema_rs.validator_for(schema, validate_formats=True, offline=True)
    # of a recursive schema the errors would be more than memory holds
    tells_where = not unfolding(schema).is_recursive

    def violation(text: str) -> str | None:
        try:
            value = orjson.loads(text) if is_json else text
        except orjson.JSONDecodeError as error:
            return f"it is not JSON: {error}"
        if validator.is_valid(value):
            return None
        if not tells_where:
            return "at $: it does not conform to the schema"
        errors = islice(validator.iter_errors(value), TOLD_AT_MOST)
        return "; ".join(f"at {_path(error)}: {in_short(error.message)}" for error in errors)

    return violation


def _path(error: jsonschema_rs.ValidationError) -> str:
    """`$.home.numbers[2]`"""
    return "$" + "".join(
        f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.instance_path
    )
