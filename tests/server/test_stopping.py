"""How a proxy in a process of its own stops, and how it is scheduled."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import httpx
import psutil

from proxy.operate.scheduling import FEW_CORES
from tests.fixtures.stack import HANG_S, Stack, eventually

ASKED = {
    "model": "steady", "messages": [{"role": "user", "content": "Hello!"}],
    "max_tokens": 5,
}  # fmt: skip


def ask(stack: Stack, **fields: object) -> httpx.Response:
    return httpx.post(f"{stack.url}/v1/chat/completions", json={**ASKED, **fields}, timeout=HANG_S)


def is_refused(url: str) -> bool:
    try:
        httpx.get(f"{url}/health/ready", timeout=HANG_S)
    except httpx.ConnectError:
        return True
    except httpx.TransportError:  # it had connected before
        return False
    return False


def test_a_stop_lets_all_streams_end_and_refuses_new_callers_at_once(scripted_stack, start):
    """With a second proxy in front of the same Triton."""
    target = f"grpc://127.0.0.1:{scripted_stack.triton_grpc_port}"
    settings = {"MAX_CONCURRENT_REQUESTS": 3, "DRAIN_TIMEOUT_S": HANG_S}
    proxy = start("proxy", "--triton", target, **settings)
    proxy.wait_ready()
    with ThreadPoolExecutor(8) as pool:
        running = [pool.submit(ask, proxy, max_tokens=500) for _ in range(8)]
        statuses = sorted(one.result().status_code for one in running)
        assert statuses == [200] * 3 + [429] * 5
        scripted_stack.settled_engine("steady")
        begun = scripted_stack.begun("steady")
        drained = [pool.submit(ask, proxy, max_tokens=1000) for _ in range(3)]
        eventually(lambda: scripted_stack.begun("steady") == begun + 3, 10, "they run")
        proxy.begin_to_stop()
        eventually(lambda: is_refused(proxy.url), 10, "new callers are refused")
        assert proxy.process.poll() is None, "it waits for what runs"
        assert [one.result().json()["usage"]["completion_tokens"] for one in drained] == [1000] * 3
    assert proxy.process.wait(HANG_S) == 0


def test_on_few_cores_a_wake_up_takes_no_core_from_another_process(scripted_stack):
    server = scripted_stack.tritonserver()
    processes = [psutil.Process(scripted_stack.process.pid), server]
    processes += server.children(recursive=True)
    wanted = os.SCHED_BATCH if len(os.sched_getaffinity(0)) <= FEW_CORES else os.SCHED_OTHER
    threads = [thread.id for process in processes for thread in process.threads()]
    assert {os.sched_getscheduler(thread) for thread in threads} == {wanted}
