"""What a route says about its answer to the layers around it. Kept in the connection's scope."""

from __future__ import annotations

from starlette.types import Scope

_FAILED, _PRIVATE = "answer_has_failed", "answer_is_private"


def mark_failed(scope: Scope) -> None:
    """The stream ends with an error, though its status was 200."""
    scope[_FAILED] = True


def mark_private(scope: Scope) -> None:
    """The caller asked that the answer is not stored."""
    scope[_PRIVATE] = True


def has_failed(scope: Scope) -> bool:
    return _FAILED in scope


def is_private(scope: Scope) -> bool:
    return _PRIVATE in scope
