"""The WebSocket, tokenizing and rendering on the live stack."""

from __future__ import annotations

import asyncio
import json
import signal

import httpx
import pytest
import websockets
from websockets.asyncio.client import ClientConnection, connect

from tests.fixtures.stack import HANG_S, Stack, eventually, halted
from tests.server.test_leaving import assert_the_engine_stops, at_the_engine

HI = [{"role": "user", "content": "Hello! Who are you?"}]
LONG = {"model": "endless", "messages": HI, "max_tokens": 4000, "temperature": 0}


@pytest.fixture(scope="module")
def http(stack):
    with httpx.Client(base_url=stack.url, timeout=HANG_S) as made:
        yield made


def socket_of(stack: Stack, **options) -> connect:
    return connect(f"ws://127.0.0.1:{stack.port}/v1/chat/completions/ws", proxy=None, **options)


async def received(socket: ClientConnection, until: int = 1) -> list[dict]:
    """Messages up to so many that end a request."""
    messages = []
    while until:
        messages.append(json.loads(await asyncio.wait_for(socket.recv(), HANG_S)))
        until -= messages[-1].get("type") in ("done", "error")
    return messages


def test_a_silent_engine_shows_signs_of_life_and_ends_in_time(stack, start):
    """The engine's process is halted; with a second proxy in front, which has little patience."""
    target = f"grpc://127.0.0.1:{stack.triton_grpc_port}"
    hasty = start("proxy", "--triton", target, STALL_TIMEOUT_S=0.7, KEEP_ALIVE_S=0.1)
    hasty.wait_ready()
    engines = stack.engine_processes("endless")

    def stall() -> None:
        with httpx.Client(base_url=hasty.url, timeout=HANG_S) as client:
            body = {**LONG, "stream": True}
            asked = client.build_request("POST", "/v1/chat/completions", json=body)
            with at_the_engine(stack):
                response = client.send(asked, stream=True)
            with halted(engines):
                *_, comment, last, done, _ = response.read().decode().split("\n\n")
        assert (comment, done) == (": keep-alive", "data: [DONE]")
        assert json.loads(last.removeprefix("data: "))["error"]["code"] == "engine_stalled"

    assert_the_engine_stops(stack, stall)
    hasty.stop()


@pytest.mark.anyio
async def test_a_message_far_over_the_limit_ends_the_socket(stack):
    """By the head of its frame: a client that sends the rest meets a closed socket."""
    async with socket_of(stack) as socket:
        text, is_masked, mask = 0x81, 0xFF, bytes(4)
        socket.transport.write(bytes([text, is_masked]) + (4_000_001).to_bytes(8, "big") + mask)
        with pytest.raises(websockets.ConnectionClosedError) as closed:
            await socket.recv()
        assert closed.value.rcvd.code == 1009


def test_a_cancel_message_stops_the_engine(stack):
    async def cancel() -> None:
        async with socket_of(stack) as socket:
            with at_the_engine(stack):
                await socket.send(json.dumps(LONG))
            await socket.send('{"type": "cancel"}')
            messages = await received(socket)
            assert messages[-1] == {"type": "done"}
            assert not any(m.get("choices", [{}])[0].get("finish_reason") for m in messages)

    assert_the_engine_stops(stack, lambda: asyncio.run(cancel()))


@pytest.mark.parametrize("is_polite", [True, False])
def test_a_socket_that_closes_stops_the_engine(stack, is_polite):
    async def leave() -> None:
        async with socket_of(stack) as socket:
            with at_the_engine(stack):
                await socket.send(json.dumps(LONG))
            if not is_polite:
                socket.transport.abort()

    assert_the_engine_stops(stack, lambda: asyncio.run(leave()))


def test_a_server_that_stops_lets_a_sockets_requests_end(stack, start):
    target = f"grpc://127.0.0.1:{stack.triton_grpc_port}"

    async def stop() -> None:
        front = start("proxy", "--triton", target)
        await asyncio.to_thread(front.wait_ready)
        async with socket_of(front) as idle, socket_of(front) as socket:
            with at_the_engine(stack):
                await socket.send(json.dumps({**LONG, "max_tokens": 2500, "request_id": "long"}))
            front.process.send_signal(signal.SIGTERM)
            await asyncio.wait_for(idle.wait_closed(), HANG_S)
            assert idle.close_code == 1001
            await socket.send(json.dumps({**LONG, "request_id": "late"}))
            messages = await received(socket, until=2)
            ends = {m["request_id"]: m for m in messages if m.get("type") in ("done", "error")}
            assert ends["long"]["type"] == "done"
            assert ends["late"]["error"]["code"] == "model_unavailable"
            await asyncio.wait_for(socket.wait_closed(), HANG_S)
            assert socket.close_code == 1001
        assert await asyncio.to_thread(front.process.wait, HANG_S) == 0

    asyncio.run(stop())


def test_a_server_that_is_hurried_closes_its_sockets_and_frees_the_engine(stack, start):
    target = f"grpc://127.0.0.1:{stack.triton_grpc_port}"
    engines = stack.engine_processes("endless")

    async def stop() -> None:
        front = start("proxy", "--triton", target)
        await asyncio.to_thread(front.wait_ready)
        async with socket_of(front) as socket:
            with at_the_engine(stack):
                await socket.send(json.dumps(LONG))
            with halted(engines):
                front.process.send_signal(signal.SIGTERM)
                eventually(lambda: "Shutting down" in front.log.read_text(), 10, "it stops")
                front.process.send_signal(signal.SIGTERM)
                assert await asyncio.to_thread(front.process.wait, HANG_S) == 0
            with pytest.raises(websockets.ConnectionClosedError):
                await received(socket)
            assert socket.close_code == 1012

    assert_the_engine_stops(stack, lambda: asyncio.run(stop()), first_generations=1)


@pytest.mark.parametrize("model", ["demo", "endless"])
@pytest.mark.parametrize("text", ["Hello, world!", " two  spaces", "naïve café 🎈 日本", "a\nb"])
def test_tokens_there_and_back(http, model, text):
    tokenized = http.post("/tokenize", json={"model": model, "prompt": text}).json()
    assert tokenized["count"] == len(tokenized["tokens"]) > 0
    assert tokenized["max_model_len"] == model_length(http, model)
    back = http.post("/detokenize", json={"model": model, "tokens": tokenized["tokens"]}).json()
    assert back == {"prompt": text}


def test_the_count_of_messages_is_the_usage_of_a_chat(http):
    tokenized = http.post("/tokenize", json={"messages": HI, "return_token_strs": True}).json()
    body = {"model": "demo", "messages": HI, "max_tokens": 1}
    usage = http.post("/v1/chat/completions", json=body).json()["usage"]
    assert tokenized["count"] == len(tokenized["token_strs"]) == usage["prompt_tokens"]
    rendered = http.post("/v1/chat/completions/render", json=body).json()
    assert rendered["prompt_token_ids"] == tokenized["tokens"]
    assert (rendered["max_tokens"], rendered["limited_by"]) == (1, ["max_tokens"])
    assert HI[0]["content"] in rendered["prompt"]


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {"prompt": "word " * 10_000}, "prompt"),
        ("/tokenize", {"messages": [{"role": "user", "content": "word " * 10_000}]}, "messages"),
        (
            "/v1/chat/completions/render",
            {"model": "demo", "messages": HI, "max_completion_tokens": 1_000_000},
            "max_completion_tokens",
        ),
    ],
)
def test_what_does_not_fit_is_refused_by_the_tokenizer(http, path, body, param):
    response = http.post(path, json=body)
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (400, "context_length_exceeded")
    assert error["param"] == param


def test_ids_outside_the_vocabulary_are_refused(http):
    response = http.post("/detokenize", json={"tokens": [1, 2**30]})
    assert response.json()["error"]["param"] == "tokens[1]"


def model_length(http, model: str) -> int:
    return http.get(f"/v1/models/{model}").json()["context_length"]
