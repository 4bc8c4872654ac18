"""A model that is scaled to zero: its requests wait for a tritonserver that starts late."""

from __future__ import annotations

import asyncio
import json
import re
import signal
from collections import defaultdict

import httpx
import pytest
import yaml

from tests.fixtures.pool_load import HEADERS
from tests.fixtures.scripted import WEIGHTS
from tests.fixtures.stack import HANG_S, PLAIN, Stack, eventually
from tests.server.pools.conftest import are_ready, listed

pytestmark = pytest.mark.xdist_group("pools")
TENANTS, REQUESTS = 25, 500
FOUR_ROWS = {"weights": str(WEIGHTS), "onnx": {"threads": 1, "max_rows": 4}}
QUEUE = re.compile(r'^proxy_fair_queue_(waiting|capacity)\{queue="default/steady"\} (\S+)$', re.M)


def queue(proxy: Stack) -> dict[str, float]:
    text = PLAIN.get(f"{proxy.url}/metrics", headers=HEADERS).text
    return {name: float(value) for name, value in QUEUE.findall(text)}


class Requests:
    """positions: of each, as its head has it. texts: the whole answers."""

    def __init__(self, proxy: Stack) -> None:
        self.client = httpx.AsyncClient(
            base_url=proxy.url,
            timeout=HANG_S,
            limits=httpx.Limits(max_connections=None),
        )
        self.positions: list[str | None] = []
        self.texts: list[str] = []

    async def send(self, tenant: str, number: int, is_held: asyncio.Event) -> None:
        body = {
            "model": "steady",
            "prompt": "Hello!",
            "max_tokens": 2,
            "stream": True,
            "metadata": {"tenant_id": tenant},
        }
        named = {"x-request-id": f"{tenant}.{number}"}
        request = self.client.stream("POST", "/v1/completions", json=body, headers=named)
        async with request as response:
            self.positions.append(response.headers.get("x-queue-position"))
            is_held.set()
            lines = [one async for one in response.aiter_lines() if one.startswith("data: ")]
        self.texts.append("".join(lines))


def ended(proxy: Stack) -> dict[str, list[int]]:
    """The number of each request by tenant, in the order in which the proxy logged their ends."""
    found: dict[str, list[int]] = defaultdict(list)
    for line in proxy.log.read_text().splitlines():
        if line.startswith("{") and (said := json.loads(line))["event"] == "request":
            tenant, dot, number = str(said.get("request_id")).partition(".")
            if dot:
                found[tenant].append(int(number))
    return found


async def send_all(proxy: Stack, start_triton) -> Requests:
    """Sends one request of each tenant, and the next ones when these are in the queue. Starts a
    tritonserver when the head of each answer says that its request waits.
    """
    requests, sent, are_held = Requests(proxy), [], []
    async with requests.client:
        for number in range(REQUESTS // TENANTS):
            for tenant in range(TENANTS):
                are_held.append(asyncio.Event())
                task = requests.send(f"tenant-{tenant}", number, are_held[-1])
                sent.append(asyncio.create_task(task))
            await asyncio.to_thread(until_queued, proxy, len(sent))
        for one in are_held:
            await one.wait()
        await asyncio.to_thread(start_triton)
        await asyncio.gather(*sent)
    return requests


def until_queued(proxy: Stack, count: int) -> None:
    eventually(lambda: queue(proxy)["waiting"] == count, 10, f"{count} requests wait")


def test_500_requests_from_zero_are_answered_in_the_order_of_each_tenant(start, proxy_of, tmp_path):
    (tmp_path / "models.yaml").write_text(yaml.safe_dump({"models": {"steady": FOUR_ROWS}}))
    place = {"MODELS_FILE": tmp_path / "models.yaml", "ARTIFACTS_DIR": tmp_path / "artifacts"}
    first = start("triton", **place)
    are_ready(first)
    file = tmp_path / "endpoints"
    file.write_text(listed(first))
    proxy = proxy_of(
        API_KEY=None,
        LOG_FORMAT="json",
        TENANT_FROM_METADATA="true",
        TRITON_URL=f"file+grpc://{file}",
        HOLD_TIMEOUT_S=600,
        KEEP_ALIVE_S=2,
        QUEUE_TIMEOUT_S=600,
    )
    file.write_text("")
    first.process.send_signal(signal.SIGTERM)
    eventually(lambda: queue(proxy).get("capacity") == 0, 30, "the model is at zero")
    assert proxy.is_ready()  # or Kubernetes would send it nothing

    def start_triton() -> None:
        late = start("triton", **place)
        file.write_text(listed(late))

    requests = asyncio.run(send_all(proxy, start_triton))
    assert len(requests.texts) == REQUESTS
    assert all(text.endswith("data: [DONE]") for text in requests.texts)
    assert [text for text in requests.texts if '"error"' in text] == []
    assert None not in requests.positions
    rows = int(queue(proxy)["capacity"])
    eventually(lambda: sum(map(len, ended(proxy).values())) == REQUESTS, 5, "all are logged")
    for tenant, numbers in ended(proxy).items():
        assert sorted(numbers) == list(range(REQUESTS // TENANTS)), tenant
        # those that run at once may end in any order
        late = max(abs(place - number) for place, number in enumerate(numbers))
        assert late <= 2 * rows, (tenant, numbers)
