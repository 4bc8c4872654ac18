"""Idempotency keys at one proxy and at two with Redis; a real engine counts what it generates."""

from __future__ import annotations

import asyncio
import signal

import httpx
import openai
import pytest

from tests.fixtures.keyed_load import (
    MODEL,
    NAME,
    NAMED,
    TOKENS,
    asked,
    assert_one_generation_a_key,
    outcomes,
    proxies,
)
from tests.fixtures.redis_server import RedisServer, needs_redis, running
from tests.fixtures.stack import HANG_S, Stack, eventually

MB = 1_000_000
PATH = "/v1/chat/completions"


def test_one_generation_for_each_key_however_often_clients_disconnect(start, scripted_stack):
    asyncio.run(assert_one_generation_a_key(start, scripted_stack, 10, growth_bytes=40 * MB))


@needs_redis
def test_the_same_with_records_in_redis(start, scripted_stack, tmp_path):
    with running(tmp_path) as redis:
        settings = {"LEDGER_URL": redis.url, "LEDGER_TIMEOUT_MS": 30_000, "growth_bytes": 40 * MB}
        asyncio.run(assert_one_generation_a_key(start, scripted_stack, 10, count=2, **settings))


@needs_redis
def test_the_claims_of_a_killed_proxy_are_taken_over(start, scripted_stack, tmp_path):
    async def run(redis: RedisServer) -> None:
        settings = {"LEDGER_URL": redis.url, "LEDGER_TIMEOUT_MS": 30_000}
        async with proxies(start, scripted_stack, 2, **settings) as (victim, other):
            url = f"{other.url}{PATH}"
            body = {**asked("killed", True), "max_tokens": 2_000}
            before = scripted_stack.begun(MODEL)
            async with httpx.AsyncClient(timeout=HANG_S, verify=False) as client:
                key = {**NAME, "idempotency-key": "killed"}
                async with client.stream(
                    "POST", f"{victim.url}{PATH}", json=body, headers=key
                ) as response:
                    lines = response.aiter_lines()  # the stream ends with its iterator
                    await anext(lines)
                    joined = [asyncio.create_task(join(url, body, key)) for _ in range(8)]
                    await asyncio.to_thread(eventually, lambda: joined_at(other) == 8, 30, "joined")
                    await asyncio.to_thread(victim.stop, signal.SIGKILL)
                    outcomes = await asyncio.gather(*joined)
                assert set(outcomes) <= {0, 503}
                last = {**key, "last-event-id": "1"}
                assert (await client.post(url, json=body, headers=last)).status_code == 410
                again = await client.post(url, json=body, headers=key)
                assert again.status_code == 200
                assert again.text.endswith("data: [DONE]\n\n")
            await asyncio.to_thread(scripted_stack.settled_engine, MODEL)
            assert scripted_stack.begun(MODEL) - before == 2

    with running(tmp_path) as redis:
        asyncio.run(run(redis))


def joined_at(proxy: Stack) -> float:
    """Requests that read another one's answer, so far."""
    counts = [line for line in outcomes(proxy) if 'outcome="joined"' in line and "_total" in line]
    return sum(float(line.rpartition(" ")[2]) for line in counts)


async def join(url: str, body: dict, key: dict[str, str]) -> int:
    """The status; 0 where the connection ended after it."""
    async with httpx.AsyncClient(timeout=HANG_S, verify=False) as client:
        try:
            response = await client.post(url, json=body, headers=key)
        except httpx.TransportError:
            return 0
        return response.status_code


@pytest.fixture(scope="module")
def named(start, scripted_stack: Stack) -> Stack:
    """A proxy that takes the callers' names from a header."""
    target = f"grpc://127.0.0.1:{scripted_stack.triton_grpc_port}"
    proxy = start("proxy", "--triton", target, **NAMED)
    proxy.wait_ready()
    return proxy


@pytest.mark.parametrize("stream", [False, True])
def test_openais_sdk_retries_with_the_key_and_notices_nothing(
    named: Stack, scripted_stack: Stack, stream: bool
):
    """The connection breaks after the request was sent: the SDK sends it again by itself."""

    class BreaksOnce(httpx.HTTPTransport):
        tries = 0

        def handle_request(self, request: httpx.Request) -> httpx.Response:
            response = super().handle_request(request)
            BreaksOnce.tries += 1
            if BreaksOnce.tries == 1:
                response.read()
                raise httpx.ReadError("broken", request=request)
            return response

    before = scripted_stack.begun(MODEL)
    with openai.OpenAI(
        base_url=f"{named.url}/v1",
        api_key="none",
        max_retries=2,
        default_headers=NAME,
        http_client=httpx.Client(transport=BreaksOnce(), timeout=HANG_S),
    ) as client:
        key = {"Idempotency-Key": f"sdk-{stream}", "Authorization": openai.Omit()}
        answer = client.chat.completions.create(
            **{**asked("sdk", stream), "stream": stream}, extra_headers=key
        )
        if stream:
            text = "".join(chunk.choices[0].delta.content or "" for chunk in answer)
        else:
            text = answer.choices[0].message.content
    assert BreaksOnce.tries == 2
    assert len(text.split()) >= TOKENS / 3
    assert scripted_stack.begun(MODEL) - before == 1
