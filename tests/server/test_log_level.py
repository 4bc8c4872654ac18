"""The level of a running proxy's log: changed and back again. No Triton runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from proxy.cli import main
from tests.fixtures.stack import HANG_S, Stack, eventually, free_port, stopped_at_the_end

PATH = "/admin/v1/log-level"


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[Stack]:
    models = tmp_path / "models.yaml"
    models.write_text("models: {another: {weights: w}}")
    variables = {
        "MODELS_FILE": str(models),
        **{name: str(free_port()) for name in ("PORT", "TRITON_GRPC_PORT", "TRITON_METRICS_PORT")},
    }
    with stopped_at_the_end() as stacks:
        triton = f"grpc://127.0.0.1:{variables['TRITON_GRPC_PORT']}"
        command = ["proxy", "--triton", triton]
        stacks.append(Stack(command, variables, tmp_path / "log.txt"))
        eventually(lambda: is_alive(stacks[0]), 30, "it listens")
        yield stacks[0]


def is_alive(stack: Stack) -> bool:
    try:
        return httpx.get(f"{stack.url}/health/live", timeout=HANG_S).status_code == 200
    except httpx.TransportError:
        return False


def level(stack: Stack) -> str:
    return httpx.get(stack.url + PATH, timeout=HANG_S).json()["level"]


def is_debug_written(stack: Stack) -> bool:
    """A request that asks nothing of a model is a line at `debug`."""
    httpx.get(f"{stack.url}/version", timeout=HANG_S)
    lines = [line for line in stack.log.read_text().splitlines() if line.startswith("{")]
    return any(json.loads(line).get("path") == "/version" for line in lines)


def test_it_holds_and_after_the_time_the_configured_level_returns(proxy, capsys):
    assert not is_debug_written(proxy)
    with pytest.raises(SystemExit) as ended:
        main(["log-level", "debug", "--for-s", "3600", "--url", proxy.url])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("debug for ")
    eventually(lambda: is_debug_written(proxy), 5, "lines at debug are written")
    httpx.put(proxy.url + PATH, json={"level": "error", "for_s": 1}, timeout=HANG_S)
    eventually(lambda: level(proxy) == "info", 5, "the configured level returns")
