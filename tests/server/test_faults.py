"""What breaks: a killed launcher; a stop while streams run; a port in use."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

import httpx
import psutil

from tests.fixtures.stack import HANG_S, ROOT, Stack, eventually

LONG = {"model": "endless", "prompt": "abc", "max_tokens": 2000, "temperature": 0, "stream": True}


def regions(stack: Stack) -> set[Path]:
    """Shared memory of the servers that this launcher started."""
    return set(Path("/dev/shm").glob(f"triton-openai-*-{stack.process.pid}-*"))


def begin_stream(client: httpx.Client, stack: Stack, **fields: int) -> tuple[str, Iterator[str]]:
    """The first line of a long stream, and all further ones."""
    asked = {**LONG, **fields}
    request = client.build_request("POST", f"{stack.url}/v1/completions", json=asked)
    lines = client.send(request, stream=True).iter_lines()
    first = next(lines)
    assert first.startswith("data: {")
    return first, lines


def said(stack: Stack) -> list[str]:
    """What the command says, in a log whose every line has the form of all."""
    lines = [json.loads(line) for line in stack.log.read_text().splitlines()]
    assert all({"event", "level", "timestamp"} <= line.keys() for line in lines)
    assert {line.get("command") for line in lines} == {"serve", None}
    return [line["event"] for line in lines if "command" in line]


def test_a_start_with_a_python_model_that_is_stopped_begins_again_and_builds_nothing(start):
    """Triton would wait for it without end. Then a stop lets streams end, and leaves nothing."""
    stack = start("serve")
    eventually(lambda: stack.engine_processes("demo"), 60, "the engine's process is there")
    for process in stack.engine_processes("demo"):
        process.suspend()
    stack.wait_ready()
    (failed,) = [line for line in stack.log.read_text().splitlines() if "is tried again" in line]
    assert "tritonserver stood still for 10 s while it started" in failed
    assert not [line for line in said(stack) if "built" in line], "it builds nothing"
    assert regions(stack)
    processes = psutil.Process(stack.process.pid).children(recursive=True)
    with httpx.Client(timeout=HANG_S) as client:
        _, lines = begin_stream(client, stack)
        stack.process.send_signal(signal.SIGTERM)
        eventually(lambda: not stack.is_ready(), 10, "new callers are refused")
        *_, last, done = [line for line in lines if line]
    assert json.loads(last.removeprefix("data: "))["choices"][0]["finish_reason"] == "length"
    assert done == "data: [DONE]"
    assert stack.stop() == 0
    assert {"starting the proxy", "stopping tritonserver", "stopped"} < set(said(stack))
    assert not regions(stack)
    eventually(partial(all_gone, processes), 5, "no process is left")


def test_a_killed_launcher_leaves_no_process_and_the_next_start_no_region(start):
    """While a stream runs: a Python model then waits for its server. The last one is stopped, and
    its stream outlasts the drain.
    """
    stack = start("serve")
    stack.wait_ready()
    for killed_too in (None, "lifeline.py"):
        processes = psutil.Process(stack.process.pid).children(recursive=True)
        assert len(processes) > 6
        condemned = stack.descendants(killed_too) if killed_too else []
        with httpx.Client(timeout=HANG_S) as client:
            begin_stream(client, stack, n=32)
            for process in (psutil.Process(stack.process.pid), *condemned):
                process.suspend()  # so that neither sees the other's end
            for process in (psutil.Process(stack.process.pid), *condemned):
                process.kill()
        stack.process.wait(HANG_S)
        eventually(partial(all_gone, processes), 5, "no orphan")
        killed, stack = stack, start("serve", DRAIN_TIMEOUT_S=1)
        stack.wait_ready()
        assert not regions(killed)
    with httpx.Client(timeout=HANG_S) as client:
        _, lines = begin_stream(client, stack, n=32)  # takes many seconds
        stack.process.send_signal(signal.SIGTERM)
        *_, error, done = [line for line in lines if line]
    assert json.loads(error.removeprefix("data: "))["error"]["code"] == "model_unavailable"
    assert done == "data: [DONE]"
    assert stack.stop() == 0


def all_gone(processes: Iterable[psutil.Process]) -> bool:
    return not any(
        process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in processes
    )


def test_a_port_in_use_is_one_clear_line(stack, start):
    refused = start("serve", TRITON_GRPC_PORT=stack.triton_grpc_port)
    assert refused.process.wait(HANG_S) == 1
    *_, last = map(json.loads, refused.log.read_text().splitlines())
    assert last["error"]["code"] == "start_failed"
    assert f"TRITON_GRPC_PORT={stack.triton_grpc_port}" in last["error"]["message"]


def test_doctor_names_what_is_wrong(start, tmp_path):
    sick = start("doctor", MODELS_FILE=tmp_path / "none.yaml")
    assert sick.process.wait(HANG_S) == 1
    assert "FAIL  models file: cannot read" in sick.log.read_text()
    well = start("doctor", MODELS_FILE=ROOT / "models.yaml")
    assert well.process.wait(HANG_S) == 0, well.log.read_text()
