"""Whether a text conforms to a JSON Schema, and where it does not; in bounded time and memory."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Any

import jsonschema_rs
import orjson

from proxy.domain.errors import in_short
from proxy.structured.unfolding import unfolding

TOLD_AT_MOST = 3  # violations, to the model and to the caller


@dataclass(frozen=True, slots=True, kw_only=True)
class Conformity:
    """tells_where: the ways in which a recursive schema is broken are more than memory holds."""

    validator: jsonschema_rs.Validator
    tells_where: bool

    @classmethod
    def to(cls, schema: Any) -> Conformity:
        """Raises ValueError: it is no schema, or a pattern in it cannot be matched."""
        return cls(
            validator=jsonschema_rs.validator_for(schema, validate_formats=True, offline=True),
            tells_where=not unfolding(schema).is_recursive,
        )

    def violation_in(self, text: str) -> str | None:
        """Of a text that must be JSON: what is wrong, None where nothing is."""
        try:
            value = orjson.loads(text)
        except orjson.JSONDecodeError as error:
            return f"it is not JSON: {error}"
        return self.violation(value)

    def violation(self, value: Any) -> str | None:
        """What is wrong, with the path of each value that is; None where nothing is."""
        if self.validator.is_valid(value):
            return None
        if not self.tells_where:
            return "at $: it does not conform to the schema"
        errors = islice(self.validator.iter_errors(value), TOLD_AT_MOST)
        return "; ".join(f"at {_path(error)}: {in_short(error.message)}" for error in errors)


def _path(error: jsonschema_rs.ValidationError) -> str:
    """`$.home.numbers[2]`"""
    return "$" + "".join(
        f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.instance_path
    )
