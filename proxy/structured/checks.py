"""Whether a finished answer conforms, for what no grammar has held it to."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any

import jsonschema_rs
import orjson

from proxy.domain.completion import Answer
from proxy.domain.constraint import Constraint, GuideKind
from proxy.domain.errors import InvalidRequest, in_short
from proxy.domain.model import ModelCard
from proxy.domain.output import FinishReason
from proxy.structured.keywords import uncheckable, unenforced

TOLD_AT_MOST = 3  # violations, to the model and to the caller
CHECKED_KINDS = (GuideKind.JSON, GuideKind.JSON_SCHEMA, GuideKind.REGEX)


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
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


@lru_cache(maxsize=256)
def unenforced_in(constraint: Constraint) -> tuple[str, ...]:
    return unenforced(json.loads(constraint.text))


@lru_cache(maxsize=256)
def _unchecked(constraint: Constraint) -> tuple[str, ...]:
    return uncheckable(json.loads(constraint.text))


@lru_cache(maxsize=256)
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
        validator = jsonschema_rs.validator_for(schema, validate_formats=True, offline=True)
    except ValueError as error:
        raise InvalidRequest(
            f"Invalid value for '{constraint.field}': {error}",
            code="invalid_parameter",
            param=constraint.field,
        ) from error
    is_json = constraint.kind is not GuideKind.REGEX
    return Check(
        field=constraint.field,
        wanted=wanted,
        violation=lambda text: violation(text, validator, is_json=is_json),
    )


def violation(text: str, validator: jsonschema_rs.Validator, *, is_json: bool = True) -> str | None:
    """What is wrong, with the path of each value that is; None where nothing is."""
    try:
        value = orjson.loads(text) if is_json else text
    except orjson.JSONDecodeError as error:
        return f"it is not JSON: {error}"
    errors = islice(validator.iter_errors(value), TOLD_AT_MOST)
    return "; ".join(f"at {_path(error)}: {in_short(error.message)}" for error in errors) or None


def _path(error: jsonschema_rs.ValidationError) -> str:
    """`$.home.numbers[2]`"""
    return "$" + "".join(
        f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.instance_path
    )
