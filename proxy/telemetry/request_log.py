"""The one log line of an HTTP request: every part adds fields to it, RequestLine writes it.

The fields are kept in a context variable, because a request's stream runs in a task of its own.
"""

from __future__ import annotations

import time
from contextvars import ContextVar
from typing import Any

import structlog

logger = structlog.get_logger(__name__)

HEALTH_CHECKS = "/health"

_fields: ContextVar[dict[str, Any]] = ContextVar("request_log_fields")


def add(**fields: Any) -> None:
    """Adds fields to the line, except those that are None. Does nothing outside of a request."""
    _fields.get({}).update({name: value for name, value in fields.items() if value is not None})


def count(name: str) -> None:
    """Adds one to the field, which begins at 0. Outside of a request it does nothing."""
    fields = _fields.get({})
    fields[name] = fields.get(name, 0) + 1


class RequestLine:
    """Writes one line when the `with` ends, with these fields, added ones and the duration.

    The level is `debug` for health checks (readiness is logged when it changes), and for requests
    that asked nothing of a model and did not fail; for all others it is `info`.
    """

    __slots__ = ("_began", "_fields", "_token")

    def __init__(self, **fields: Any) -> None:
        self._fields = fields

    def __enter__(self) -> None:
        self._began = time.perf_counter()
        self._token = _fields.set(self._fields)

    def __exit__(self, *_: object) -> None:
        line = self._fields
        line["duration_ms"] = round((time.perf_counter() - self._began) * 1000, 1)
        matters = "model" in line or "error" in line
        is_check = str(line.get("path", "")).startswith(HEALTH_CHECKS)
        write = logger.info if matters and not is_check else logger.debug
        write("request", **line)
        _fields.reset(self._token)
