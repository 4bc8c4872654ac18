"""Errors about a constraint, which name the request field that the constraint came from."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from triton_openai.proxy.domain.constraint import Constraint, GuideKind
from triton_openai.proxy.domain.errors import InvalidRequest, InvalidSchema
from triton_openai.proxy.domain.sandbox import TooCostly

TOOLS_FIELD = "tools"
# A constraint's names in the domain and in the tensor contract.
_INTERNAL_NAMES = frozenset({"constraint", "guided_decoding_guide", "guided_decoding_guide_type"})


@contextmanager
def map_constraint_errors(constraint: Constraint | None) -> Iterator[None]:
    """Puts the caller's field into errors that name the constraint by an internal name.

    Args:
        constraint: the request's; where it has none, the tools caused the guide.

    Raises:
        InvalidSchema: instead of an InvalidRequest that reports a mistake in a schema.
    """
    try:
        yield
    except InvalidRequest as error:
        if error.param not in _INTERNAL_NAMES:
            raise
        field = TOOLS_FIELD if constraint is None else constraint.field
        error.param = field
        is_schema = constraint is None or constraint.kind is GuideKind.JSON_SCHEMA
        if is_schema and error.code == "invalid_parameter":
            raise InvalidSchema(error.message, param=field) from error
        raise


def too_costly(field: str, error: TooCostly, *, is_schema: bool) -> InvalidRequest | InvalidSchema:
    """The error for a value that the sandbox could not process within its limits."""
    reason = f"{error}; make it smaller or simpler."
    if is_schema:
        return InvalidSchema(f"Invalid schema for '{field}': {reason}", param=field)
    return InvalidRequest(
        f"Invalid value for '{field}': {reason}", code="invalid_parameter", param=field
    )
