"""Checks of a finished answer, for constraints that no grammar has enforced.

A Check is data. `violation` compiles what the caller wrote, so Checker runs it in a sandbox.
"""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Protocol
from weakref import WeakValueDictionary

import jsonschema_rs
import orjson

from proxy.domain.completion import Answer
from proxy.domain.constraint import Constraint, GuideKind
from proxy.domain.errors import InvalidRequest, in_short
from proxy.domain.model import ModelCard
from proxy.domain.output import FinishReason
from proxy.domain.sandbox import Sandbox, TooCostly
from proxy.language.structured.constraint_errors import too_costly
from proxy.language.structured.schema import unfolding

VIOLATIONS_AT_MOST = 3  # in one message, to the model and to the caller
CHECKED_KINDS = (GuideKind.JSON, GuideKind.JSON_SCHEMA, GuideKind.REGEX)
# Of these, xgrammar 0.1.32 of TensorRT-LLM 1.2.1 admits invalid values, as 102 for at least 107.
_LOOSE = re.compile(r"\b(?:multipleOf|(?:exclusiveM|m)..imum|m..Length|pattern\w*|propertyNames)\b")
_ANY_JSON = {"type": ["object", "array"]}


class Check(Protocol):
    """Picklable. field: the path of the constraint in the request body.

    requirement: the constraint in words, for the model. violation: what is wrong with an answer,
    None if it conforms.
    """

    @property
    def field(self) -> str: ...

    @property
    def requirement(self) -> str: ...

    def violation(self, answer: Answer) -> str | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TextCheck:
    """Checks an answer's text."""

    constraint: Constraint

    @property
    def field(self) -> str:
        return self.constraint.field

    @property
    def requirement(self) -> str:
        match self.constraint.kind:
            case GuideKind.REGEX:
                return f"text that this regular expression matches in full: {self.constraint.text}"
            case GuideKind.JSON:
                return "a JSON object or array"
            case _:
                return f"JSON that conforms to this JSON Schema: {self.constraint.text}"

    def violation(self, answer: Answer) -> str | None:
        """What is wrong; None also if the token limit cut the answer off, or it is only calls."""
        if answer.reason is FinishReason.LENGTH or (answer.calls and not answer.text.strip()):
            return None
        match self.constraint.kind:
            case GuideKind.REGEX:
                return _violation(
                    compiled_regex(self.constraint.text), answer.text, with_places=True
                )
            case GuideKind.JSON:
                return schema_violation(_ANY_JSON, answer.text)
            case _:
                return schema_violation(json.loads(self.constraint.text), answer.text)


class Checker:
    """Checks finished answers in a sandbox, one of each caller at a time.

    Many choices finish together, and the sandbox refuses a caller that has many calls waiting.
    """

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def violation(self, check: Check, answer: Answer, caller: str) -> str | None:
        """What is wrong with the answer; None if it conforms.

        Raises:
            RequestError: the check takes too much time or memory.
            RateLimited: as the sandbox.
        """
        bare = replace(answer, reasoning="", server_calls=(), log_probs=(), token_ids=())
        turn = self._turns.setdefault(caller, asyncio.Lock())
        async with turn:
            try:
                return await self._sandbox.run(caller, check.violation, bare)
            except TooCostly as error:
                raise too_costly(check.field, error, is_schema=True) from error


def engine_constraint(constraint: Constraint | None, card: ModelCard) -> Constraint | None:
    """The constraint for the engine; None if there is none, or the answer is checked instead.

    One that can be neither enforced nor checked is returned too: the caller must refuse it.
    """
    if constraint is None or "constraint" in card.capabilities:
        return constraint
    return None if constraint.kind in CHECKED_KINDS else constraint


def check_of(constraint: Constraint | None, card: ModelCard) -> Check | None:
    """The check of the answer's text; None where the engine enforces all that the caller requires.

    Raises:
        InvalidRequest: an answer must be checked, and no check knows the constraint.
    """
    if constraint is None or constraint.kind not in CHECKED_KINDS:
        return None
    is_enforced = "constraint" in card.capabilities
    has_more = {*constraint.unenforced, *loose(constraint.text, card)} - set(constraint.unchecked)
    if is_enforced and not (constraint.is_strict and has_more):
        return None
    if constraint.check_error is not None:
        raise InvalidRequest(
            f"Invalid value for '{constraint.field}': {constraint.check_error}",
            param=constraint.field,
        )
    return TextCheck(constraint=constraint)


def unenforced_keywords(constraint: Constraint | None, card: ModelCard) -> tuple[str, ...]:
    """Keywords of the schema that neither the engine nor a check of the answer enforces."""
    if constraint is None or constraint.kind is not GuideKind.JSON_SCHEMA:
        return ()
    if "constraint" not in card.capabilities or constraint.is_strict:
        return constraint.unchecked
    return tuple(dict.fromkeys((*constraint.unenforced, *loose(constraint.text, card))))


def loose(schema: Any, card: ModelCard) -> list[str]:
    """Keywords in a schema that the engine may not hold where it compiles it itself."""
    return [] if card.facts.has_our_grammars else _LOOSE.findall(str(schema))


def schema_violation(schema: Any, text: str) -> str | None:
    """What is wrong with a text that should be JSON for `schema`, with the path of each wrong
    value; None if it conforms.
    """
    try:
        orjson.loads(text)  # refuses infinities and half of a surrogate pair
    except orjson.JSONDecodeError as error:
        return f"it is not JSON: {error}"
    value = json.loads(text)  # has exact integers
    # a recursive schema has more errors than fit into memory
    return _violation(compiled(schema), value, with_places=not unfolding(schema).is_recursive)


def compiled(schema: Any) -> jsonschema_rs.Validator:
    """Raises ValueError: it is not a valid schema."""
    return jsonschema_rs.validator_for(schema, validate_formats=True, offline=True)


def compiled_regex(pattern: str) -> jsonschema_rs.Validator:
    """Raises ValueError: the check's dialect does not have this regular expression."""
    return compiled(_regex_schema(pattern))


def _regex_schema(pattern: str) -> dict[str, str]:
    return {"type": "string", "pattern": f"^(?:{pattern})$"}


def _violation(validator: jsonschema_rs.Validator, value: Any, *, with_places: bool) -> str | None:
    if validator.is_valid(value):
        return None
    if not with_places:
        return "at $: it does not conform to the schema"
    errors = islice(validator.iter_errors(value), VIOLATIONS_AT_MOST)
    return "; ".join(f"at {_path(error)}: {in_short(error.message)}" for error in errors)


def _path(error: jsonschema_rs.ValidationError) -> str:
    """`$.home.numbers[2]`"""
    return "$" + "".join(
        f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.instance_path
    )
