"""Whether a finished answer conforms, for what no grammar has held it to."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

from proxy.domain.completion import Answer
from proxy.domain.constraint import Constraint, GuideKind
from proxy.domain.errors import InvalidRequest
from proxy.domain.model import ModelCard
from proxy.domain.output import FinishReason
from proxy.structured.conformity import Conformity
from proxy.structured.keywords import uncheckable, unenforced

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
        conformity = Conformity.to(schema)
    except ValueError as error:
        raise InvalidRequest(
            f"Invalid value for '{constraint.field}': {error}",
            code="invalid_parameter",
            param=constraint.field,
        ) from error
    is_json = constraint.kind is not GuideKind.REGEX
    return TextCheck(
        field=constraint.field,
        wanted=wanted,
        violation=conformity.violation_in if is_json else conformity.violation,
    )
