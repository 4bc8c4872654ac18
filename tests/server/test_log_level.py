"""The level of a running proxy's log: changed by the command, and back again."""

from __future__ import annotations

import json

import httpx
import pytest

from proxy.cli import main
from tests.fixtures.stack import HANG_S, Stack, eventually

PATH = "/admin/v1/log-level"


def level(stack: Stack) -> str:
    return httpx.get(stack.url + PATH, timeout=HANG_S).json()["level"]


def is_debug_written(stack: Stack) -> bool:
    """A request that asks nothing of a model is a line at `debug`."""
    httpx.get(f"{stack.url}/version", timeout=HANG_S)
    lines = [line for line in stack.log.read_text().splitlines() if line.startswith("{")]
    return any(json.loads(line).get("path") == "/version" for line in lines)


def test_it_holds_and_after_the_time_the_configured_level_returns(scripted_stack, capsys):
    assert not is_debug_written(scripted_stack)
    with pytest.raises(SystemExit) as ended:
        main(["log-level", "debug", "--for-s", "3600", "--url", scripted_stack.url])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("debug for ")
    eventually(lambda: is_debug_written(scripted_stack), 5, "lines at debug are written")
    httpx.put(scripted_stack.url + PATH, json={"level": "error", "for_s": 1}, timeout=HANG_S)
    eventually(lambda: level(scripted_stack) == "info", 5, "the configured level returns")
