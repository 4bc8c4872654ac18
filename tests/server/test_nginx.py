"""Two proxies behind the nginx example, of which one stops: every request is answered."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.fixtures import nginx
from tests.fixtures.stack import HANG_S, Stack

pytestmark = nginx.needs_nginx
REQUESTS = 40
ASKED = {
    "model": "steady", "messages": [{"role": "user", "content": "Hello!"}],
    "max_tokens": 20,
}  # fmt: skip
Ask = Callable[[], int]


@pytest.fixture
def proxies(start, scripted_stack) -> list[Stack]:
    """Before the same Triton."""
    target = f"grpc://127.0.0.1:{scripted_stack.triton_grpc_port}"
    found = [start("proxy", "--triton", target, ALLOWED_HOSTS="localhost") for _ in range(2)]
    for proxy in found:
        proxy.wait_ready(120)
    return found


@pytest.fixture
def ask(proxies, tmp_path) -> Iterator[Ask]:
    with nginx.running([proxy.port for proxy in proxies], tmp_path) as front:

        def run() -> int:
            url = f"{front.url}/v1/chat/completions"
            return httpx.post(url, json=ASKED, verify=front.trust, timeout=HANG_S).status_code

        yield run


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_all_are_answered_when_one_has_stopped(proxies, ask, number):
    proxies[0].stop(number)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: ask(), range(REQUESTS)))
    assert found == [200] * REQUESTS


def test_all_are_answered_while_one_drains(proxies, ask):
    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(ask) for _ in range(REQUESTS)]
        asked[4].result()
        proxies[0].begin_to_stop()
        assert [one.result() for one in asked] == [200] * REQUESTS
    assert proxies[0].process.wait(HANG_S) == 0
