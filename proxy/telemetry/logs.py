"""Logging to stderr: one line for each event, as JSON or as readable text.

Texts of callers stay on that line, steer no terminal, and show no key.
"""

from __future__ import annotations

import asyncio
import logging
import re
import sys
from collections.abc import Callable
from typing import Any

import orjson
import structlog
from typing_extensions import Self

from proxy.domain.log_level import LevelInForce, LogLevel
from proxy.domain.record import current_record

# They log each request at INFO, and the metrics of every endpoint are read once a second.
CHATTY = ("httpx", "httpcore")
# A key (access.authentication.api_key), also a part of one, and keys of other APIs; a token.
_KEY = re.compile(r"(?<![A-Za-z0-9])(sk-(?:[A-Za-z0-9]{4,32}-)?)[A-Za-z0-9_-]{16,}")
_TOKEN = re.compile(r"(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*")
HIDDEN = "…"


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


def stdout_writer(command: str) -> Callable[[str], None]:
    """Writes what a command says as records, whatever the level."""
    level = structlog.make_filtering_bound_logger(logging.INFO)
    out, made = structlog.BytesLogger(sys.stdout.buffer), processors("json")
    logger = structlog.wrap_logger(out, processors=made, wrapper_class=level, command=command)
    return lambda line: logger.info(line)


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


def redacted(text: str) -> str:
    """The text without what has the form of an API key or a token; a key's public id stays."""
    if "sk-" in text:
        text = _KEY.sub(rf"\1{HIDDEN}", text)
    return _TOKEN.sub(HIDDEN, text) if "eyJ" in text else text


def printable(text: str, keeps: str = "") -> str:
    """The text with its control characters, line ends and lone surrogates as escapes.

    keeps: characters that stay as they are.
    """
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each in keeps else ascii(each)[1:-1] for each in text
    )


def _shared() -> list[Any]:
    return [
        _with_request_id,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        _without_keys,
    ]


def _with_request_id(_: Any, __: str, event: structlog.typing.EventDict) -> Any:
    """A line that is written while a request runs names it."""
    record = current_record.get()
    if record is None or not record.request_id:
        return event
    return {"request_id": record.request_id, **event}


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


class ChosenLevel:
    """The level that an operator chose. Called by the routes of /admin/v1/log-level.

    apply: makes a level hold. At the end of `async with`, the configured level holds again: nobody
    finds a forgotten `debug` after a restart.
    """

    def __init__(self, configured: LogLevel, apply: Callable[[LogLevel], None]) -> None:
        self._configured = self._level = configured
        self._apply = apply
        self._return: asyncio.TimerHandle | None = None

    @property
    def in_force(self) -> LevelInForce:
        left_s = None
        if self._return is not None:
            left_s = round(self._return.when() - asyncio.get_running_loop().time(), 1)
        return LevelInForce(level=self._level, configured=self._configured, returns_in_s=left_s)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.set(self._configured, None)

    def set(self, level: LogLevel, for_s: float | None) -> None:
        """for_s: for how long; None: until it is changed again, or the proxy stops."""
        if self._return is not None:
            self._return.cancel()
            self._return = None
        if for_s is not None and level is not self._configured:
            loop = asyncio.get_running_loop()
            self._return = loop.call_later(for_s, self.set, self._configured, None)
        if level is not self._level:
            self._level = level
            self._apply(level)
