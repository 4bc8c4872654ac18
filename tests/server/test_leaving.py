"""Who leaves frees the engine: shown from the engine's own counters.

The counters are handed on ten times a second, so a generation that ends within 200 ms has
stopped counting 350 ms after its client left.
"""

from __future__ import annotations

import socket
import time

import httpx
import pytest

from tests.fixtures.stack import eventually

SEEN_WITHIN_S = 0.35
LONG = {"model": "endless", "prompt": "abc", "max_tokens": 4000, "temperature": 0}


def assert_the_engine_stopped(stack, left_at: float, *, before: dict[str, float]) -> None:
    time.sleep(max(0.0, left_at + SEEN_WITHIN_S - time.monotonic()))
    at_stop = stack.engine("endless")
    time.sleep(0.5)
    later = stack.engine("endless")
    assert later["generated_tokens"] == at_stop["generated_tokens"]
    assert later["requests_unfinished"] == 0
    assert later["requests_cancelled"] == before["requests_cancelled"] + 1
    assert later["generated_tokens"] - before["generated_tokens"] < LONG["max_tokens"]


def wait_until_generating(stack, before: dict[str, float]) -> None:
    def generates() -> bool:
        return stack.engine("endless")["generated_tokens"] > before["generated_tokens"]

    eventually(generates, 5, "the engine generates")


@pytest.fixture
def before(stack) -> dict[str, float]:
    return stack.settled_engine("endless")


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_hangs_up(stack, before, stream):
    content = httpx.Request("POST", f"{stack.url}/v1/completions", json={**LONG, "stream": stream})
    head = "".join(f"{name}: {value}\r\n" for name, value in content.headers.items())
    with socket.create_connection(("127.0.0.1", stack.port)) as sock:
        sock.sendall(f"POST /v1/completions HTTP/1.1\r\n{head}\r\n".encode() + content.read())
        wait_until_generating(stack, before)
    assert_the_engine_stopped(stack, time.monotonic(), before=before)


def test_a_stop_string(stack, before):
    whole = httpx.post(f"{stack.url}/v1/completions", json={**LONG, "max_tokens": 60}).json()
    text = whole["choices"][0]["text"]
    stop = text[40:44]
    before = stack.settled_engine("endless")
    stopped = httpx.post(f"{stack.url}/v1/completions", json={**LONG, "stop": stop}).json()
    left_at = time.monotonic()
    (choice,) = stopped["choices"]
    assert choice["finish_reason"] == "stop"
    assert choice["text"] == text[: text.index(stop)]
    assert stopped["usage"]["completion_tokens"] <= whole["usage"]["completion_tokens"]
    assert_the_engine_stopped(stack, left_at, before=before)


@pytest.mark.parametrize("stream", [True, False])
def test_a_deadline(stack, start, before, stream):
    """With a second proxy in front of the same Triton, which has little patience."""
    hasty = start(
        "proxy", "--triton", f"grpc://127.0.0.1:{stack.triton_grpc_port}", REQUEST_TIMEOUT_S=0.3
    )
    hasty.wait_ready()
    response = httpx.post(f"{hasty.url}/v1/completions", json={**LONG, "stream": stream})
    left_at = time.monotonic()
    assert response.status_code == (200 if stream else 504)
    assert '"code":"deadline_exceeded"' in response.text
    assert response.text.endswith("data: [DONE]\n\n") is stream
    assert_the_engine_stopped(stack, left_at, before=before)


def test_a_client_that_leaves_the_queue_never_runs(stack, before):
    """The engine runs one row at a time: the second request waits, and leaves while it waits."""
    with (
        httpx.Client() as running,
        running.stream("POST", f"{stack.url}/v1/completions", json={**LONG, "stream": True}) as r,
    ):
        lines = r.iter_lines()
        next(lines)
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{stack.url}/v1/completions", json={**LONG, "max_tokens": 1}, timeout=0.3)
        eventually(
            lambda: stack.engine("endless")["requests_cancelled"] > before["requests_cancelled"],
            0.5,
            "the waiting one is gone",
        )
        assert stack.engine("endless")["requests_unfinished"] == 1
        next(lines)
