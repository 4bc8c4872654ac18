"""The one log line of an HTTP request: every part adds what it knows, `written` writes it.

Parts meet in a context variable, because a request's stream runs in a task of its own.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import structlog

logger = structlog.get_logger(__name__)

CHECKS = "/health"

_line: ContextVar[dict[str, Any]] = ContextVar("line")


def add(**fields: Any) -> None:
    """None says nothing. Outside of an HTTP request nothing is kept."""
    _line.get({}).update({name: value for name, value in fields.items() if value is not None})


def count(name: str) -> None:
    """Adds one to the field, which begins at 0."""
    fields = _line.get({})
    fields[name] = fields.get(name, 0) + 1


@contextmanager
def written(**fields: Any) -> Iterator[None]:
    """Writes the line at the end, with how long it took; at `debug` where nothing was asked of a
    model and nothing went wrong, and for health checks, whatever they say: readiness is logged when
    it changes.
    """
    began = time.perf_counter()
    token = _line.set({**fields})
    try:
        yield
    finally:
        line = _line.get()
        line["duration_ms"] = round((time.perf_counter() - began) * 1000, 1)
        matters = "model" in line or "error" in line
        is_check = str(line.get("path", "")).startswith(CHECKS)
        write = logger.info if matters and not is_check else logger.debug
        write("request", **line)
        _line.reset(token)
