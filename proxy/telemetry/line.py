"""The one log line of an HTTP request: every part adds what it knows, `Written` writes it.

Parts meet in a context variable, because a request's stream runs in a task of its own.
"""

from __future__ import annotations

import time
from contextvars import ContextVar
from typing import Any

import structlog

logger = structlog.get_logger(__name__)

CHECKS = "/health"

_line: ContextVar[dict[str, Any]] = ContextVar("line")


def add(**fields: Any) -> None:
    """Leaves out what is None. Outside of an HTTP request nothing is kept."""
    _line.get({}).update({name: value for name, value in fields.items() if value is not None})


def count(name: str) -> None:
    """Adds one to the field, which begins at 0."""
    fields = _line.get({})
    fields[name] = fields.get(name, 0) + 1


class Written:
    """Writes the line at the end of the `with`, with how long it took.

    At `debug` where no model was used and nothing failed, and for health checks whatever they
    answer: readiness is logged when it changes.
    """

    __slots__ = ("_began", "_fields", "_token")

    def __init__(self, **fields: Any) -> None:
        self._fields = fields

    def __enter__(self) -> None:
        self._began = time.perf_counter()
        self._token = _line.set(self._fields)

    def __exit__(self, *_: object) -> None:
        line = self._fields
        line["duration_ms"] = round((time.perf_counter() - self._began) * 1000, 1)
        matters = "model" in line or "error" in line
        is_check = str(line.get("path", "")).startswith(CHECKS)
        write = logger.info if matters and not is_check else logger.debug
        write("request", **line)
        _line.reset(self._token)
