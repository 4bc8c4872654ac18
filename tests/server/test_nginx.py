"""Two proxies behind the nginx example share keys, limits and Redis, also when one stops; both
WebSockets pass it.
"""

from __future__ import annotations

import asyncio
import json
import signal
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
import websockets

from proxy.access.store.store import Store
from proxy.api.openai import chat_socket
from proxy.api.responses import response_socket
from proxy.domain.identity import ALL_SCOPES, Limits
from tests.fixtures import nginx
from tests.fixtures.metric_samples import MetricSamples
from tests.fixtures.redis_server import needs_redis
from tests.fixtures.redis_server import running as redis_running
from tests.fixtures.stack import HANG_S, Stack

PEPPER = "a-pepper-for-tests-that-is-long-enough"


async def stored(url: str, *limits: Limits) -> list[str]:
    """The key of a new tenant for each of the limits."""
    store, keys = Store(url, PEPPER.encode()), []
    await store.prepare()
    for number, each in enumerate(limits):
        name = f"tenant-{number}"
        await store.tenants.create("test", name, limits=each)
        made = await store.keys.create("test", name, name="a key", scopes=ALL_SCOPES)
        keys.append(made.key)
    await store.close()
    return keys


pytestmark = nginx.needs_nginx
REQUESTS = 24  # twice as many stay within the burst that the example allows
ASKED = {
    "model": "steady", "messages": [{"role": "user", "content": "Hello!"}],
    "max_tokens": 20,
}  # fmt: skip


def test_all_are_answered_while_one_drains_and_when_it_is_gone(start, scripted_stack, tmp_path):
    target = f"grpc://127.0.0.1:{scripted_stack.triton_grpc_port}"
    proxies = [start("proxy", "--triton", target, ALLOWED_HOSTS="localhost") for _ in range(2)]
    for proxy in proxies:
        proxy.wait_ready(120)
    drained, _ = proxies

    def ask(_: int = 0) -> int:
        url = f"{front.url}/v1/chat/completions"
        return httpx.post(url, json=ASKED, verify=front.trust, timeout=HANG_S).status_code

    with (
        nginx.running([each.port for each in proxies], tmp_path) as front,
        ThreadPoolExecutor(8) as pool,
    ):
        asked = [pool.submit(ask) for _ in range(REQUESTS)]
        asked[4].result()
        drained.begin_to_stop()
        assert [one.result() for one in asked] == [200] * REQUESTS
        assert drained.process.wait(HANG_S) == 0
        assert list(pool.map(ask, range(REQUESTS))) == [200] * REQUESTS


OF_RESPONSES = {"type": "response.create", "model": "steady", "input": "Hello!"}
SOCKETS = {  # path -> the request, and what the last message is
    chat_socket.PATH: (ASKED, "done"),
    response_socket.PATH: ({**OF_RESPONSES, "max_output_tokens": 20}, "response.incomplete"),
}


@pytest.mark.anyio
async def test_both_websockets_pass(start, scripted_stack, tmp_path):
    target = f"grpc://127.0.0.1:{scripted_stack.triton_grpc_port}"
    proxy = start("proxy", "--triton", target, ALLOWED_HOSTS="localhost")
    proxy.wait_ready(120)
    with nginx.running([proxy.port], tmp_path) as front:
        for path, (request, last) in SOCKETS.items():
            url = f"{front.url}{path}".replace("https", "wss")
            async with websockets.connect(url, ssl=front.trust, proxy=None) as socket:
                await socket.send(json.dumps(request))
                while json.loads(await asyncio.wait_for(socket.recv(), HANG_S)).get("type") != last:
                    pass
    proxy.stop()


@needs_redis
def test_two_proxies_with_redis_have_one_limit_and_one_answer_and_survive_kill_9(
    start, scripted_stack, tmp_path
):
    """The other proxy replays the answer, also when the one that generated it is gone."""
    url = f"sqlite:///{tmp_path / 'store.db'}"
    few, free = asyncio.run(stored(url, Limits(requests_per_day=10), Limits()))
    target = f"grpc://127.0.0.1:{scripted_stack.triton_grpc_port}"
    given = {"KEY_PEPPER": PEPPER, "STORE_URL": url, "PUBLIC_METRICS": "true"}

    def ask(base: str, key: str, **headers: str) -> httpx.Response:
        sent = {"authorization": f"Bearer {key}", **headers}
        path = f"{base}/v1/chat/completions"
        return httpx.post(path, json=ASKED, headers=sent, verify=front.trust, timeout=HANG_S)

    def generated(proxy: Stack) -> float:
        page = MetricSamples(httpx.get(f"{proxy.url}/metrics", timeout=HANG_S).text)
        return page.value("proxy_requests_total", model="steady", outcome="length")

    def limited(_: int = 0) -> int:
        return ask(front.url, few).status_code

    with redis_running(tmp_path) as redis, ThreadPoolExecutor(8) as pool:
        given |= {"LEDGER_URL": redis.url, "LEDGER_TIMEOUT_MS": 30_000}
        pair = [start("proxy", "--triton", target, **given) for _ in range(2)]
        for proxy in pair:
            proxy.wait_ready(120)
        with nginx.running([proxy.port for proxy in pair], tmp_path) as front:
            once = {"idempotency-key": "once"}
            first = ask(front.url, free, **once)
            victim, other = sorted(pair, key=generated, reverse=True)
            assert [generated(proxy) for proxy in (victim, other)] == [1, 0]
            replayed = ask(other.url, free, **once)
            assert (replayed.status_code, replayed.content) == (200, first.content)
            assert replayed.headers["idempotent-replayed"] == "true"
            assert sorted(pool.map(limited, range(16))) == [200] * 10 + [429] * 6
            assert sum(map(generated, pair)) == 11
            assert generated(other) > 0
            victim.stop(signal.SIGKILL)
            assert ask(front.url, free, **once).content == first.content
            assert {ask(front.url, free).status_code for _ in range(8)} == {200}
            assert limited() == 429
