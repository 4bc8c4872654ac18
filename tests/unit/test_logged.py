"""The plugin that searches the logs of every test finds what it is there to find."""

from __future__ import annotations

import logging

import httpx
import pytest
import structlog
from structlog.testing import capture_logs

from tests.doubles.key_source import whole_key
from tests.fixtures.logged import CONTENT, LOGGED

PROMPT = "my secret plan is to sleep"


@pytest.fixture(autouse=True)
def nothing_left():
    yield
    LOGGED.lines.clear()
    LOGGED.texts.clear()


def send(**body: object) -> None:
    transport = httpx.MockTransport(lambda _: httpx.Response(200))
    with httpx.Client(transport=transport) as client:
        client.post("http://a/", json=body, headers={"x-api-key": "the key of this test"})


def test_a_logged_prompt_is_found_and_the_line_is_named():
    send(messages=[{"role": "user", "content": PROMPT}])
    structlog.get_logger("any").info("request failed", detail=f"cannot do {PROMPT!r}")
    (leak,) = LOGGED.leaks()
    assert PROMPT in leak
    assert "request failed" in leak


def test_a_prompt_in_a_traceback_or_of_a_library_is_found():
    send(prompt=PROMPT)
    try:
        raise ValueError(PROMPT)
    except ValueError as error:
        structlog.get_logger("any").error("internal error", exc_info=error)
    assert len(list(LOGGED.leaks())) == 1
    send(prompt=PROMPT)
    logging.getLogger("library").warning("got %s", PROMPT)
    assert len(list(LOGGED.leaks())) == 1


def test_a_prompt_is_found_where_another_test_double_captures_the_logs():
    send(prompt=PROMPT)
    with capture_logs():
        structlog.get_logger("any").warning(PROMPT)
    assert len(list(LOGGED.leaks())) == 1


def test_a_prompt_may_be_logged_in_lines_of_log_content_only_and_a_key_nowhere():
    send(prompt=PROMPT)
    logger = structlog.get_logger("any")
    logger.debug("a line", detail=PROMPT)
    assert len(list(LOGGED.leaks())) == 1
    send(prompt=PROMPT)
    logger.debug(CONTENT, request=PROMPT)
    assert not list(LOGGED.leaks())
    send(prompt=PROMPT)
    logger.debug(CONTENT, given="the key of this test")
    assert any("the key of this test" in leak for leak in list(LOGGED.leaks()))
    for secret in (whole_key("abc"), f"eyJ{'a' * 9}.eyJ{'b' * 9}.c"):
        send(prompt=PROMPT)
        logger.debug(CONTENT, given=secret)
        assert not list(LOGGED.leaks()), "what looks like a key is taken out of each line"


def test_the_log_of_a_stack_is_read_line_by_line(tmp_path):
    file = tmp_path / "log.txt"
    LOGGED.follow(file)
    send(prompt=PROMPT)
    file.write_text('{"event":"a","level":"info","detail":"my secret plan')
    assert not list(LOGGED.leaks())
    with file.open("a") as more:
        more.write(' is to sleep"}\n')
    (leak,) = LOGGED.leaks()
    assert PROMPT in leak
    assert not list(LOGGED.leaks())
