"""Makes the record of each request, and writes its log line when it has ended.

The line has the fields that `line_of` lists, within bounds: no part of the program can put a
prompt, an answer or a key into it by mistake.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Protocol

import structlog

from proxy.domain.record import Headers, RequestRecord, Result, Trace, current_record
from proxy.telemetry.logs import printable, redacted

logger = structlog.get_logger(__name__)

Line = dict[str, Any]

TASK = "request "  # how the name of a task begins that works for a request
HEALTH_CHECKS = "/health"
MOST_NOTES = 16  # OpenAI's bound of `metadata`
REQUEST_TRACE = b"x-request-trace"
USABLE_TRACE = re.compile(rb"[!-~]{1,128}")
ANSWERED = (Result.COMPLETED, Result.ABANDONED)
LONGEST_NOTE, LONGEST_NAME, LONGEST_WORD = 512, 256, 64  # characters


class RecordReader(Protocol):
    """What else becomes of records: traces, the list of recent ones."""

    def ended(self, record: RequestRecord, line: Line) -> None:
        """line: the fields of its log line."""
        ...


class RequestLog:
    """A WebSocket has a record for each message.

    trace: the place in a trace of a request with these headers; None: nothing is traced.
    """

    def __init__(
        self, *readers: RecordReader, trace: Callable[[Headers], Trace] | None = None
    ) -> None:
        self._readers = readers
        self._trace = trace
        self._running: dict[RequestRecord, None] = {}

    @property
    def running(self) -> Iterator[RequestRecord]:
        """The records of the requests that have not ended, the oldest first."""
        return iter(self._running)

    @contextmanager
    def recorded(
        self, method: str, path: str, *, request_id: str = "", headers: Headers = ()
    ) -> Iterator[RequestRecord]:
        """The record of a request that runs as long as the `with`.

        The running task gets the request's name, which a warning of a late event loop shows. The
        line's level is `debug` for health checks (readiness is logged when it changes), and
        for requests that asked nothing of a model and did not fail; for all others it is `info`.
        """
        record = RequestRecord(
            method=method,
            path=path,
            request_id=request_id,
            headers=headers,
            request_trace=_callers_trace(headers) if REQUEST_TRACE in dict(headers) else None,
            trace=None if self._trace is None else self._trace(headers),
        )
        token = current_record.set(record)
        self._running[record] = None
        if request_id and (task := asyncio.current_task()) is not None:
            task.set_name(f"{TASK}{request_id} {path}")
        try:
            yield record
        finally:
            record.end()
            del self._running[record]
            line = line_of(record)
            matters = "model" in line or "error" in line
            is_news = matters and not path.startswith(HEALTH_CHECKS)
            write = logger.info if is_news else logger.debug
            write("request", **line)
            for reader in self._readers:
                reader.ended(record, line)
            record.stages = []  # they refer to it: the garbage collector would have to find them
            current_record.reset(token)


def _callers_trace(headers: Headers) -> str | None:
    """The first header `x-request-trace`; None if it is unusable."""
    given = next(value for name, value in headers if name == REQUEST_TRACE)
    return given.decode("ascii") if USABLE_TRACE.fullmatch(given) else None


def line_of(record: RequestRecord) -> Line:
    """The fields of a record's line; those that are None are left out."""
    used, has_generated = record.used, record.has_generated
    is_answered = has_generated and record.result in ANSWERED
    wait_s = record.row_wait_s if has_generated else None
    first_s = record.first_event_s if has_generated else None
    own_s = record.generation_s - (wait_s or 0.0) if has_generated else None
    fields: Line = {
        # the request
        "method": _word(record.method),
        "path": _name(record.path),
        "id": _id(record.id),
        "model": _name(record.model),
        "request_trace": _id(record.request_trace),
        "trace_id": None if record.trace is None else f"{record.trace.trace_id:032x}",
        # its caller, and what the caller says of itself
        "tenant": _name(record.tenant),
        "key_id": _name(record.key_id),
        "user": _note(record.user),
        "safety_identifier": _note(record.safety_identifier),
        "metadata": _notes(record.metadata) or None,
        "capped_priority": record.capped_priority if has_generated else None,
        "clamped_max_tokens": record.clamped_max_tokens,
        "dropped_tools": list(record.dropped_tools) or None,
        "without_effect": list(record.without_effect) or None,
        # its answer
        "status": record.status,
        "finish": _word(record.outcome) if is_answered else None,
        "error": _word(record.error),
        "idempotency": _word(record.idempotency),
        "prompt_tokens": record.prompt_tokens,
        "cached_tokens": used and used.cached_tokens,
        "completion_tokens": used and used.completion_tokens,
        # where it was generated, and how often it was tried
        "endpoints": [_name(each) for each in record.endpoints] or None,
        "resent": record.resends or None,
        "continued": len(record.pauses) or None,
        # times
        "ttft_ms": _ms(first_s),
        "queue_ms": _ms(wait_s),
        "inference_ms": _ms(own_s),
        "duration_ms": _ms(record.duration_s),
        "stages_ms": {name: _ms(each) for name, each in record.seconds().items()} or None,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _bounded(longest: int) -> Callable[[Any], Any]:
    """A function that cuts texts, and leaves None as it is."""

    def bounded(value: str | None) -> str | None:
        if value is None:
            return None
        if len(value) > longest:
            value = f"{value[:longest]}…"
        return printable(redacted(value))

    return bounded


_word, _note = lru_cache(64)(_bounded(LONGEST_WORD)), _bounded(LONGEST_NOTE)
_id, _name = _bounded(LONGEST_NAME), lru_cache(64)(_bounded(LONGEST_NAME))


def _notes(given: Mapping[str, str]) -> dict[str, str]:
    return {_name(name): _note(value) for name, value in list(given.items())[:MOST_NOTES]}


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 1)
