from __future__ import annotations

import json
import subprocess
import sys

import pytest

PROGRAM = """
import logging, sys, structlog
from proxy.telemetry import logs
logs.configure(sys.argv[1], sys.argv[2])
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


def lines(level: str, form: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, level, form], stderr=subprocess.PIPE, text=True, check=True
    )
    return done.stderr.splitlines()


def test_each_event_is_a_line_of_json_ours_and_those_of_libraries():
    ours, theirs, failed = map(json.loads, lines("info", "json"))
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


def test_text_is_for_people():
    first = lines("info", "text")[0]
    assert "request" in first
    assert "model" in first
    assert not first.startswith("{")


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
    command = [sys.executable, "-c", FAILURE, form]
    shown = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=True).stderr
    assert shown.count("ValueError: no") == 2
    assert "a local variable" not in shown
    assert len(shown) < 4_000


REQUESTS = """
import logging, sys, httpx
from proxy.telemetry import logs
logs.configure(sys.argv[1], "json")
answers = httpx.MockTransport(lambda _: httpx.Response(200))
httpx.Client(transport=answers).get("http://127.0.0.1:8002/metrics")
logging.getLogger("httpcore.connection").info("connect_tcp.started")
logging.getLogger("httpx").warning("something is wrong")
logging.getLogger("library").error("last")
"""


@pytest.mark.parametrize(
    ("level", "events"),
    [
        ("debug", ["something is wrong", "last"]),
        ("info", ["something is wrong", "last"]),
        ("error", ["last"]),
    ],
)
def test_requests_that_the_proxy_sends_are_not_logged_at_any_level(level, events):
    done = subprocess.run(
        [sys.executable, "-c", REQUESTS, level], stderr=subprocess.PIPE, text=True, check=True
    )
    assert [json.loads(line)["event"] for line in done.stderr.splitlines()] == events


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
    done = subprocess.run(
        [sys.executable, "-c", CHANGED], stderr=subprocess.PIPE, text=True, check=True
    )
    events = [json.loads(line)["event"] for line in done.stderr.splitlines()]
    assert [each for each in events if not each.startswith("theirs")] == [
        *("info: info", "info: error"),
        *("debug: debug", "debug: info", "debug: error"),
        *("error: error", "info: info", "info: error", "content"),
    ]
    assert [each for each in events if each.startswith("theirs")] == [
        *("theirs at info: info", "theirs at info: error"),
        *("theirs at debug: info", "theirs at debug: error"),
        *("theirs at error: error", "theirs at info: info", "theirs at info: error"),
    ]
