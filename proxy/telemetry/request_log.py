"""The one log line of an HTTP request: every part adds fields to it, `line` writes it at the end.

The fields are kept in a context variable, because a request's stream runs in a task of its own.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
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


@contextmanager
def line(**fields: Any) -> Iterator[None]:
    """Writes one line when the `with` ends, with these fields, added ones and the duration.

    The level is `debug` for health checks (readiness is logged when it changes), and for requests
    that asked nothing of a model and did not fail; for all others it is `info`.
    """
    began = time.perf_counter()
    token = _fields.set({**fields})
    try:
        yield
    finally:
        written = _fields.get()
        written["duration_ms"] = round((time.perf_counter() - began) * 1000, 1)
        matters = "model" in written or "error" in written
        is_check = str(written.get("path", "")).startswith(HEALTH_CHECKS)
        log = logger.info if matters and not is_check else logger.debug
        log("request", **written)
        _fields.reset(token)
