"""Errors about a constraint, which name the request field that the constraint came from."""

from __future__ import annotations

from proxy.domain.constraint import Constraint, GuideKind
from proxy.domain.errors import ErrorCode, InvalidRequest, RequestError
from proxy.domain.sandbox import TooCostly

TOOLS_FIELD = "tools"
# A constraint's names in the domain and in the tensor contract.
_INTERNAL_NAMES = frozenset({"constraint", "guided_decoding_guide", "guided_decoding_guide_type"})


def map_constraint_error(error: InvalidRequest, constraint: Constraint | None) -> None:
    """Has an error that names the constraint internally name the caller's field instead.

    Args:
        constraint: the request's; where it has none, the tools caused the guide.

    Raises:
        RequestError: instead of an InvalidRequest that reports a mistake in a schema.
    """
    if error.param not in _INTERNAL_NAMES:
        return
    error.param = field = TOOLS_FIELD if constraint is None else constraint.field
    is_schema = constraint is None or constraint.kind is GuideKind.JSON_SCHEMA
    if is_schema and error.code is ErrorCode.INVALID_PARAMETER:
        raise RequestError(error.message, code=ErrorCode.INVALID_SCHEMA, param=field) from error


def too_costly(field: str, error: TooCostly, *, is_schema: bool) -> RequestError:
    """The error for a value that the sandbox could not process within its limits."""
    reason = f"{error}; make it smaller or simpler."
    if is_schema:
        return RequestError(
            f"Invalid schema for '{field}': {reason}", code=ErrorCode.INVALID_SCHEMA, param=field
        )
    return InvalidRequest(f"Invalid value for '{field}': {reason}", param=field)
