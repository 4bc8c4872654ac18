"""Verifies that tenants are charged the tokens that their engines made, also of answers that are
cancelled or that a stop string ends: by the engine's own counters.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from proxy.access.store.store import Store
from proxy.domain.identity import ALL_SCOPES, Limits
from tests.doubles.key_source import PEPPER
from tests.fixtures.running import Start
from tests.fixtures.stack import HANG_S, Stack, eventually

PATH = "/v1/completions"
BODY = {"model": "endless", "prompt": "abc", "max_tokens": 1200, "temperature": 0}
MONTHLY = 10_000_000
TIMES = 5


async def stored(url: str) -> str:
    """The key of a new tenant."""
    store = Store(url, PEPPER.encode())
    await store.prepare()
    await store.tenants.create("test", "acme", limits=Limits(monthly_tokens=MONTHLY))
    made = await store.keys.create("test", "acme", name="a key", scopes=ALL_SCOPES)
    await store.close()
    return made.key


@pytest.fixture(scope="module")
def tenant(
    stack: Stack, start: Start, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[httpx.Client]:
    """Its client of a second proxy in front of the same Triton."""
    folder: Path = tmp_path_factory.mktemp("charges")
    url = f"sqlite:///{folder / 'store.db'}"
    key = asyncio.run(stored(url))
    target = f"grpc://127.0.0.1:{stack.triton_grpc_port}"
    proxy = start("proxy", "--triton", target, KEY_PEPPER=PEPPER, STORE_URL=url)
    proxy.wait_ready(120)
    headers = {"authorization": f"Bearer {key}"}
    options = {"base_url": proxy.url, "headers": headers, "timeout": HANG_S}
    with httpx.Client(**options, trust_env=False) as client:
        yield client


def charged(tenant: httpx.Client) -> tuple[int, int]:
    """Output tokens that are stored, and all tokens that the limit of the month has counted."""
    response = tenant.get("/v1/usage")
    rows = response.json()["data"]
    left = int(response.headers["x-ratelimit-remaining-monthly-tokens"])
    return sum(row["output_tokens"] for row in rows), MONTHLY - left


def leave(tenant: httpx.Client, events: int, **fields: object) -> None:
    """Reads so many lines of a stream."""
    body = {**BODY, "stream": True, **fields}
    with tenant.stream("POST", PATH, json=body) as response:
        for _, _ in zip(range(events), response.iter_lines(), strict=False):
            pass


def leave_at_once(tenant: httpx.Client) -> None:
    with contextlib.suppress(httpx.ReadTimeout):
        tenant.post(PATH, json=BODY, timeout=httpx.Timeout(HANG_S, read=0.05))


def reach_a_stop_string(tenant: httpx.Client) -> None:
    whole = tenant.post(PATH, json={**BODY, "max_tokens": 60}).json()["choices"][0]["text"]
    stopped = tenant.post(PATH, json={**BODY, "stop": whole[40:44]}).json()
    assert stopped["choices"][0]["finish_reason"] == "stop"


CASES: dict[str, Callable[[httpx.Client], object]] = {
    "whole": lambda tenant: tenant.post(PATH, json={**BODY, "max_tokens": 50}),
    "a client that leaves": lambda tenant: leave(tenant, 20),
    "one that leaves a batch": lambda tenant: leave(tenant, 80, n=8),
    "one that leaves before the answer": leave_at_once,
    "a stop string": reach_a_stop_string,
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_charged_is_what_the_engine_counted(stack: Stack, tenant: httpx.Client, case: str):
    before, (output, counted) = stack.settled_engine("endless"), charged(tenant)
    for _ in range(TIMES):
        CASES[case](tenant)
    after = stack.settled_engine("endless")
    made = after["generated_tokens"] - before["generated_tokens"]
    with contextlib.suppress(AssertionError):
        eventually(lambda: charged(tenant)[0] - output == made, 5, "all of it is charged")
    now = charged(tenant)
    assert now[0] - output == made
    assert made <= now[1] - counted <= made + TIMES * 2 * len(BODY["prompt"])
