"""Logs to stderr, one line an event: JSON, or readable text."""

from __future__ import annotations

import logging
import sys
from typing import Any

import orjson
import structlog


def configure(level: str, form: str) -> None:
    """`form` is "json", "text", or "auto": text on a terminal. Takes in what libraries log.

    Our own events do not pass `logging`, which takes longer than the rest of their way.
    """
    if form == "auto":
        form = "text" if sys.stderr.isatty() else "json"
    number = logging.getLevelName(level.upper())
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    # rich's tracebacks show every local variable, which takes seconds of CPU for one error
    text = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
    is_json = form == "json"
    structlog.configure(
        processors=[
            *shared,
            structlog.processors.JSONRenderer(serializer=orjson.dumps) if is_json else text,
        ],
        logger_factory=structlog.BytesLoggerFactory(sys.stderr.buffer)
        if is_json
        else structlog.PrintLoggerFactory(sys.stderr),
        wrapper_class=structlog.make_filtering_bound_logger(number),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.JSONRenderer() if is_json else text,
            ],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(number)
