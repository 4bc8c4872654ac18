"""The one log line of an HTTP request: every part adds fields to it, RequestLine writes it.

`line_fields` says which fields a line may hold; what else is added is not written. They are kept in
a context variable, because a request's stream runs in a task of its own.
The timeline of the request runs as long as its line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Protocol

import structlog

from proxy.domain.identity import current_headers
from proxy.domain.timeline import Timeline, Trace, current_timeline
from proxy.telemetry.line_fields import MOST_ITEMS, bounded

logger = structlog.get_logger(__name__)

Headers = Sequence[tuple[bytes, bytes]]

HEALTH_CHECKS = "/health"

_fields: ContextVar[dict[str, Any]] = ContextVar("request_log_fields")


class RequestObserver(Protocol):
    """What else becomes of requests: traces, the list of recent ones."""

    def trace(self, headers: Headers) -> Trace | None:
        """The place of a request that begins; None where it has none. headers: the caller's."""
        ...

    def ended(self, timeline: Timeline, line: Mapping[str, Any]) -> None:
        """line: the fields of its log line."""
        ...


# Set for each connection by api.middleware.RequestContext.
current_observer: ContextVar[RequestObserver | None] = ContextVar("observer", default=None)


def add(**fields: Any) -> None:
    """Adds fields to the line, except those that are None. Does nothing outside of a request."""
    _fields.get({}).update({name: value for name, value in fields.items() if value is not None})


def added(name: str) -> Any:
    """A field that the line has so far; None if it has not."""
    return _fields.get({}).get(name)


def count(name: str) -> None:
    """Adds one to the field, which begins at 0. Outside of a request it does nothing."""
    fields = _fields.get({})
    fields[name] = fields.get(name, 0) + 1


def list_in(name: str, value: str) -> None:
    """Adds the value to the list that this field is, unless it is there. MOST_ITEMS at most."""
    values = _fields.get({}).setdefault(name, [])
    if value not in values and len(values) < MOST_ITEMS:
        values.append(value)


class RequestLine:
    """Writes one line when the `with` ends, with these fields, added ones and the duration.

    The level is `debug` for health checks (readiness is logged when it changes), and for requests
    that asked nothing of a model and did not fail; for all others it is `info`.
    """

    __slots__ = ("_fields", "_observer", "_timeline", "_tokens")

    def __init__(self, **fields: Any) -> None:
        self._fields = fields

    def __enter__(self) -> None:
        self._observer = observer = current_observer.get()
        trace = None if observer is None else observer.trace(current_headers.get())
        self._timeline = Timeline(trace)
        self._tokens = (_fields.set(self._fields), current_timeline.set(self._timeline))

    def __exit__(self, *_: object) -> None:
        line, timeline = self._fields, self._timeline
        timeline.end()
        line["duration_ms"] = _ms(timeline.duration_s)
        if timeline.stages:
            line["stages_ms"] = {name: _ms(each) for name, each in timeline.seconds().items()}
        if timeline.trace is not None:
            line["trace_id"] = f"{timeline.trace.trace_id:032x}"
        line = bounded(line)
        matters = "model" in line or "error" in line
        is_check = str(line.get("path", "")).startswith(HEALTH_CHECKS)
        write = logger.info if matters and not is_check else logger.debug
        write("request", **line)
        if self._observer is not None:
            self._observer.ended(timeline, line)
        fields, current = self._tokens
        _fields.reset(fields)
        current_timeline.reset(current)


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 1)
