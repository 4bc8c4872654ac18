"""Configures logging to stderr: one line for each event, as JSON or as readable text."""

from __future__ import annotations

import logging
import sys
from typing import Any

import orjson
import structlog


def configure(level: str, form: str) -> None:
    """Configures the logs of this project and of its libraries.

    `form` is "json", "text", or "auto", which is text on a terminal and JSON elsewhere. Our own
    events bypass the `logging` module, because it costs more than all the rest of a log call.
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
    _take_over_logging(shared, structlog.processors.JSONRenderer() if is_json else text, number)


def _take_over_logging(shared: list[Any], renderer: Any, level: int) -> None:
    """Writes what libraries log through `logging` in the same form."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level)
