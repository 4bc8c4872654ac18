"""Who leaves frees the engine: shown from the engine's own counters.

In tokens, not in seconds: on a busy machine both the engine and the news of a leaving client take
longer. The counters are handed on ten times a second, so they miss some tokens of before. A machine
that is busy gets several tries: there a generation may end before its client has left.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import struct
from collections.abc import Callable, Iterator

import httpx
import pytest
from websockets.sync.client import ClientConnection, connect

from tests.fixtures.running import ROWS
from tests.fixtures.stack import HANG_S, Stack, eventually

MORE_TOKENS = 500  # a third of a second, for an engine that does nothing else
TRIES = 5
LONG = {"model": "endless", "prompt": "abc", "max_tokens": 4000, "temperature": 0}


def assert_the_engine_stops(
    stack: Stack, leave: Callable[[], None], *, first_generations: int = 0
) -> None:
    """`leave` begins a long generation and returns as its client leaves, one way or another.

    first_generations: of proxies that `leave` starts.
    """
    for _ in range(TRIES):
        before = stack.settled_engine("endless")
        leave()
        at_leaving = stack.engine("endless")
        after = stack.settled_engine("endless")
        if after["requests_finished"] > before["requests_finished"] + first_generations:
            continue
        assert after["requests_cancelled"] == before["requests_cancelled"] + 1
        assert after["generated_tokens"] - before["generated_tokens"] < LONG["max_tokens"]
        if after["generated_tokens"] - at_leaving["generated_tokens"] < MORE_TOKENS:
            return
    pytest.fail(
        f"it ended, or went on for over {MORE_TOKENS} tokens: {before}, {at_leaving}, {after}"
    )


@contextlib.contextmanager
def at_the_engine(stack: Stack) -> Iterator[None]:
    """What is sent within has come there at the end. It may be over again, too."""
    begun = stack.begun("endless")
    yield
    eventually(lambda: stack.begun("endless") > begun, 5, "it has come to the engine")


def raw_request(stack: Stack, version: str, **fields: object) -> bytes:
    request = httpx.Request("POST", f"{stack.url}/v1/completions", json={**LONG, **fields})
    head = "".join(f"{name}: {value}\r\n" for name, value in request.headers.items())
    return f"POST /v1/completions HTTP/{version}\r\n{head}\r\n".encode() + request.read()


@pytest.mark.parametrize(("version", "stream"), [("1.1", True), ("1.0", False)])
def test_a_client_that_hangs_up(stack, stream, version):
    def hang_up() -> None:
        address = ("127.0.0.1", stack.port)
        with socket.create_connection(address) as sock, at_the_engine(stack):
            sock.sendall(raw_request(stack, version, stream=stream))

    assert_the_engine_stops(stack, hang_up)


def reset(connection: ClientConnection) -> None:
    linger = struct.pack("ii", 1, 0)
    connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    os.close(connection.socket.detach())


SOCKETS = {
    "/v1/responses": {"type": "response.create", "input": "abc", "max_output_tokens": 4000},
    "/v1/chat/completions/ws": {"messages": [{"role": "user", "content": "abc"}]},
}


@pytest.mark.parametrize("path", SOCKETS)
@pytest.mark.parametrize(
    "end",
    [ClientConnection.close, lambda connection: connection.socket.shutdown(socket.SHUT_WR), reset],
    ids=["closed", "half closed", "reset"],
)
def test_a_websocket_that_ends_in_the_middle_of_an_answer(stack, path, end):
    def disconnect() -> None:
        with connect(f"ws://127.0.0.1:{stack.port}{path}") as connection:
            body = {"model": "endless", "temperature": 0, **SOCKETS[path]}
            connection.send(json.dumps(body))
            while '"delta"' not in connection.recv():
                pass
            end(connection)

    assert_the_engine_stops(stack, disconnect)


@pytest.mark.parametrize(("version", "stream"), [("1.1", True), ("1.0", False)])
def test_a_client_that_only_stops_sending_is_answered(stack, stream, version):
    before = stack.settled_engine("endless")
    with socket.create_connection(("127.0.0.1", stack.port), timeout=HANG_S) as sock:
        sock.sendall(raw_request(stack, version, stream=stream, max_tokens=300))
        sock.shutdown(socket.SHUT_WR)
        raw = b"".join(iter(lambda: sock.recv(65_536), b""))
    assert b"HTTP/1.1 200 OK\r\n" in raw
    assert b'"finish_reason":"length"' in raw
    after = stack.settled_engine("endless")
    assert after["generated_tokens"] - before["generated_tokens"] == 300


def test_a_stop_string(stack):
    whole = httpx.post(f"{stack.url}/v1/completions", json={**LONG, "max_tokens": 60}).json()
    text = whole["choices"][0]["text"]
    stop = text[40:44]

    def reach_the_stop_string() -> None:
        stopped = httpx.post(f"{stack.url}/v1/completions", json={**LONG, "stop": stop}).json()
        (choice,) = stopped["choices"]
        assert choice["finish_reason"] == "stop"
        assert choice["text"] == text[: text.index(stop)]
        assert stopped["usage"]["completion_tokens"] <= whole["usage"]["completion_tokens"]

    assert_the_engine_stops(stack, reach_the_stop_string)


def test_leaving_stops_every_choice_and_every_prompt(stack):
    before = stack.settled_engine("endless")
    body = {**LONG, "prompt": ["abc", "xyz"], "n": 2, "stream": True}
    with httpx.stream("POST", f"{stack.url}/v1/completions", json=body) as response:
        indices = set()
        for line in response.iter_lines():
            if line.startswith("data: {"):
                indices.add(json.loads(line.removeprefix("data: "))["choices"][0]["index"])
            if len(indices) == 4:
                break
    after = stack.settled_engine("endless")
    assert after["requests_cancelled"] - before["requests_cancelled"] == 4
    assert after["generated_tokens"] - before["generated_tokens"] < 4 * LONG["max_tokens"]


@pytest.mark.anyio
async def test_a_client_that_leaves_the_queue_never_runs(stack):
    """All rows are taken: the next request waits, and leaves while it waits."""
    body = {**LONG, "stream": True}
    async with httpx.AsyncClient(base_url=stack.url, timeout=HANG_S) as client:
        short = await client.post("/v1/completions", json={**LONG, "max_tokens": 1})
        size = short.json()["usage"]["prompt_tokens"]
        before = stack.settled_engine("endless")
        requests = [client.build_request("POST", "/v1/completions", json=body)] * ROWS
        running = await asyncio.gather(*(client.send(one, stream=True) for one in requests))
        patience = httpx.Timeout(HANG_S, read=0.2)
        with pytest.raises(httpx.ReadTimeout):
            await client.post("/v1/completions", json={**LONG, "max_tokens": 1}, timeout=patience)
        eventually(
            lambda: stack.engine("endless")["requests_cancelled"] > before["requests_cancelled"],
            1,
            "the waiting one is gone",
        )
        for response in running:
            await response.aclose()
    after = stack.settled_engine("endless")
    prompt_tokens = after["prompt_tokens"] - before["prompt_tokens"]
    assert after["requests_cancelled"] - before["requests_cancelled"] == ROWS + 1
    assert prompt_tokens == ROWS * size
