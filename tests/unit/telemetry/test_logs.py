from __future__ import annotations

import json
import subprocess
import sys

import pytest


def written(program: str, *arguments: str) -> str:
    """What it writes into its log."""
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, stderr=subprocess.PIPE, text=True, check=True).stderr


def events(program: str, *arguments: str) -> list[str]:
    return [json.loads(line)["event"] for line in written(program, *arguments).splitlines()]


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
