"""Limits of tenants hold over HTTP, in two proxies with one Redis, while one proxy is killed."""

from __future__ import annotations

import asyncio
import signal
from contextlib import ExitStack

import httpx

from proxy.domain.identity import Limits
from tests.fixtures.redis_server import needs_redis, running
from tests.fixtures.stack import HANG_S, Stack, eventually
from tests.fixtures.stored_keys import PEPPER, stored

TOKENS = 5
HELD_TOKENS = 3_500  # 21 s of a stream, and a killed proxy's lease ends after 10 s
MOST = 6


def body(tokens: int = TOKENS, **fields: object) -> dict[str, object]:
    messages = [{"role": "user", "content": "Hello!"}]
    return {"model": "steady", "messages": messages, "max_tokens": tokens, **fields}


def request(proxy: Stack, key: str, **fields: object) -> httpx.Request:
    url, headers = f"{proxy.url}/v1/chat/completions", {"authorization": f"Bearer {key}"}
    return httpx.Request("POST", url, json=body(**fields), headers=headers)


@needs_redis
def test_a_killed_proxy_gives_back_what_it_held_and_not_what_it_used(
    start, scripted_stack, tmp_path
):
    url = f"sqlite:///{tmp_path / 'store.db'}"
    limits = (
        Limits(concurrent_streams=2),
        Limits(requests_per_day=MOST),
        Limits(output_tokens_per_day=MOST * TOKENS),
    )
    streaming, *counted = asyncio.run(stored(url, *limits))
    target = f"grpc://127.0.0.1:{scripted_stack.triton_grpc_port}"
    given = {"KEY_PEPPER": PEPPER, "STORE_URL": url, "LEDGER_TIMEOUT_MS": 10_000}
    with running(tmp_path) as redis, httpx.Client(timeout=HANG_S) as client, ExitStack() as held:
        pair = [start("proxy", "--triton", target, LEDGER_URL=redis.url, **given) for _ in "12"]
        for proxy in pair:
            proxy.wait_ready()
        victim, other = pair

        def status(proxy: Stack, key: str, **fields: object) -> int:
            return client.send(request(proxy, key, **fields)).status_code

        for proxy in pair:
            stream = client.send(
                request(proxy, streaming, tokens=HELD_TOKENS, stream=True), stream=True
            )
            held.callback(stream.close)
            assert stream.status_code == 200
        for key in counted:
            statuses = [status(pair[number % 2], key) for number in range(MOST + 2)]
            assert statuses == [200] * MOST + [429] * 2
        assert status(other, streaming, stream=True) == 429
        victim.stop(signal.SIGKILL)
        eventually(lambda: status(other, streaming, stream=True) == 200, 30, "its lease ends")
        assert [status(other, key) for key in counted] == [429, 429]
