"""Configures logging to stderr: one line for each event, as JSON or as readable text."""

from __future__ import annotations

import logging
import sys
from typing import Any

import orjson
import structlog

from proxy.telemetry.printable_text import printable, redacted

# They log each request at INFO, and the metrics of every endpoint are read once a second.
CHATTY = ("httpx", "httpcore")


class LeveledLogger(structlog.make_filtering_bound_logger(logging.INFO)):  # type: ignore[misc]
    """The class of our loggers. Its base class has the methods of the level: those below it do
    nothing. So a level that changes costs no log call anything.
    """


def configure(level: str, form: str, *, has_content: bool = False) -> None:
    """Configures the logs of this project and of its libraries.

    `form` is "json", "text", or "auto", which is text on a terminal and JSON elsewhere. Our own
    events bypass the `logging` module, because it costs more than all the rest of a log call.
    has_content: see `set_level`.
    """
    if form == "auto":
        form = "text" if sys.stderr.isatty() else "json"
    is_json = form == "json"
    structlog.configure(
        processors=processors(form),
        logger_factory=structlog.BytesLoggerFactory(sys.stderr.buffer)
        if is_json
        else structlog.PrintLoggerFactory(sys.stderr),
        wrapper_class=LeveledLogger,
        cache_logger_on_first_use=True,
    )
    _take_over_logging(
        [structlog.processors.JSONRenderer()] if is_json else [_made_printable, _text()]
    )
    set_level(level, has_content=has_content)


def set_level(level: str, *, has_content: bool = False) -> None:
    """Makes a level hold from now on, for every logger there is.

    has_content: libraries log at `debug`, too. There they write frames of WebSockets, parameters of
    SQL and header fields: prompts, answers and keys.
    """
    number = logging.getLevelName(level.upper())
    LeveledLogger.__bases__ = (structlog.make_filtering_bound_logger(number),)
    logging.getLogger().setLevel(number if has_content else max(number, logging.INFO))
    for name in CHATTY:
        logging.getLogger(name).setLevel(max(number, logging.WARNING))


def processors(form: str) -> list[Any]:
    """What makes a line of an event; `form` is "json" or "text"."""
    if form == "json":
        return [*_shared(), structlog.processors.JSONRenderer(serializer=orjson.dumps)]
    return [*_shared(), _made_printable, _text()]


def _shared() -> list[Any]:
    return [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        _without_keys,
    ]


def _without_keys(_: Any, __: str, event: structlog.typing.EventDict) -> Any:
    """Callers put keys where they do not belong: into paths, names of models, ids of requests."""
    for name, value in event.items():
        if isinstance(value, str):
            event[name] = redacted(value)
    return event


def _made_printable(_: Any, __: str, event: structlog.typing.EventDict) -> Any:
    """JSON escapes control characters; in text they could begin a line, or steer a terminal."""
    for name, value in event.items():
        if isinstance(value, str):
            event[name] = printable(value, keeps="\n\t" if name == "exception" else "")
    return event


def _text() -> structlog.dev.ConsoleRenderer:
    # rich's tracebacks show every local variable, which takes seconds of CPU for one error
    return structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)


def _take_over_logging(renderers: list[Any]) -> None:
    """Writes what libraries log through `logging` in the same form."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=_shared(),
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderers],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
