from __future__ import annotations

import asyncio
import json
import subprocess
import sys

import pytest

from proxy.domain.log_level import LogLevel
from proxy.telemetry.logs import ChosenLevel

PROGRAM = """
import logging, sys, structlog
from proxy.telemetry import logs
logs.configure("info", "json")
logger = structlog.get_logger("ours")
logger.debug("hidden")
structlog.contextvars.bind_contextvars(request_id="req_1")
logger.info("request", model="demo", what={"a": b"b"})
logging.getLogger("library").warning("theirs %d", 7)
try:
    1 / 0
except ZeroDivisionError as error:
    logger.error("failed", exc_info=error)
"""


def written(program: str, *arguments: str) -> str:
    """What it writes into its log."""
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, stderr=subprocess.PIPE, text=True, check=True).stderr


def events(program: str, *arguments: str) -> list[str]:
    return [json.loads(line)["event"] for line in written(program, *arguments).splitlines()]


def test_each_event_is_a_line_of_json_ours_and_those_of_libraries():
    ours, theirs, failed = map(json.loads, written(PROGRAM).splitlines())
    assert ours.pop("timestamp").endswith("Z")
    assert ours == {
        "event": "request",
        "level": "info",
        "model": "demo",
        "request_id": "req_1",
        "what": {"a": "b'b'"},
    }
    assert (theirs["event"], theirs["level"]) == ("theirs 7", "warning")
    assert "ZeroDivisionError" in failed["exception"]


FAILURE = """
import logging, sys, structlog
from proxy.telemetry import logs
logs.configure("info", sys.argv[1])
def fail():
    large = ["a local " + "variable"] * 100_000
    raise ValueError("no")
for write in (structlog.get_logger("ours").error, logging.getLogger("library").error):
    try:
        fail()
    except ValueError:
        write("failed", exc_info=True)
"""


@pytest.mark.parametrize("form", ["json", "text"])
def test_a_traceback_shows_no_local_variables(form):
    """To show large ones takes seconds of CPU, and they hold prompts."""
    shown = written(FAILURE, form)
    assert shown.startswith("{") is (form == "json")
    assert shown.count("ValueError: no") == 2
    assert "a local variable" not in shown
    assert len(shown) < 4_000


CHANGED = """
import logging, structlog
from proxy.telemetry import logs
logs.configure("info", "json")
ours, library = structlog.get_logger("ours"), logging.getLogger("library")
for level in ("info", "debug", "error", "info"):
    logs.set_level(level)
    for name in ("debug", "info", "error"):
        getattr(ours, name)(f"{level}: {name}")
        getattr(library, name)(f"theirs at {level}: {name}")
logs.set_level("debug", has_content=True)
library.debug("content")
"""


def test_a_level_changes_for_every_logger_there_is_and_libraries_never_log_at_debug():
    """At `debug` they write frames of WebSockets and parameters of SQL: only LOG_CONTENT does."""
    found = events(CHANGED)
    assert [each for each in found if not each.startswith("theirs")] == [
        *("info: info", "info: error"),
        *("debug: debug", "debug: info", "debug: error"),
        *("error: error", "info: info", "info: error", "content"),
    ]
    assert [each for each in found if each.startswith("theirs")] == [
        *("theirs at info: info", "theirs at info: error"),
        *("theirs at debug: info", "theirs at debug: error"),
        *("theirs at error: error", "theirs at info: info", "theirs at info: error"),
    ]


def test_a_chosen_level_ends_with_the_application_and_the_configured_one_has_no_end():
    applied: list[LogLevel] = []

    async def run() -> None:
        async with ChosenLevel(LogLevel.INFO, applied.append) as level:
            level.set(LogLevel.DEBUG, 60.0)
            level.set(LogLevel.INFO, 60.0)
            assert (level.in_force.level, level.in_force.returns_in_s) == (LogLevel.INFO, None)
            level.set(LogLevel.ERROR, None)

    asyncio.run(run())
    assert applied == [LogLevel.DEBUG, LogLevel.INFO, LogLevel.ERROR, LogLevel.INFO]
