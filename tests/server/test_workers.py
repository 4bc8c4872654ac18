"""A proxy of two processes: one address, one count, and neither is missed when it dies."""

from __future__ import annotations

import os
import re
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import httpx

from tests.fixtures.running import WORKERS
from tests.fixtures.stack import HANG_S, Stack, eventually
from triton_openai.proxy.launch.scheduling import FEW_CORES

ASKED = {
    "model": "steady", "messages": [{"role": "user", "content": "Hello!"}],
    "max_tokens": 5,
}  # fmt: skip
COUNT = re.compile(r'^proxy_requests_total\{model="steady",outcome="length"\} (\S+)$', re.MULTILINE)


def answered(stack: Stack) -> float:
    found = COUNT.search(httpx.get(f"{stack.url}/metrics").text)
    return float(found[1]) if found else 0.0


def ask(stack: Stack, **fields: object) -> httpx.Response:
    return httpx.post(f"{stack.url}/v1/chat/completions", json={**ASKED, **fields}, timeout=HANG_S)


def starts(stack: Stack) -> int:
    """How often a worker began to listen."""
    return len(re.findall(r"worker \d is ready", stack.log.read_text()))


def test_they_count_together(scripted_stack):
    assert len(scripted_stack.workers()) == WORKERS
    before = answered(scripted_stack)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: ask(scripted_stack).status_code, range(16)))
    assert found == [200] * 16
    assert {answered(scripted_stack) for _ in range(8)} == {before + 16}


def test_one_that_dies_is_started_again_and_what_it_counted_stays(scripted_stack):
    ask(scripted_stack)
    before, (first, second) = answered(scripted_stack), scripted_stack.workers()

    def is_replaced() -> bool:
        found = scripted_stack.workers()
        return len(found) == WORKERS and first not in found and second in found

    first.kill()
    eventually(is_replaced, 20, "there are two again")
    assert "died (signal 9)" in scripted_stack.log.read_text()
    eventually(scripted_stack.is_ready, 20, "ready")
    assert ask(scripted_stack).status_code == 200
    eventually(lambda: answered(scripted_stack) >= before + 1, 5, "it is counted")


def test_who_asks_while_one_starts_is_answered(scripted_stack):
    """A worker that starts must not change the socket that the others accept from.

    Each caller is alone: a call of accept that blocks would end with the next connection.
    """
    eventually(lambda: starts(scripted_stack) >= WORKERS, 20, "all have started")
    before = starts(scripted_stack)
    scripted_stack.workers()[0].kill()
    until = time.monotonic() + HANG_S
    while starts(scripted_stack) == before:
        assert time.monotonic() < until, "it is not started again"
        assert httpx.get(f"{scripted_stack.url}/health/live", timeout=HANG_S).status_code == 200


def test_a_limit_is_one_for_all_of_them_and_a_stop_lets_all_drain(scripted_stack, start):
    """With a second proxy in front of the same Triton."""
    target = f"grpc://127.0.0.1:{scripted_stack.triton_grpc_port}"
    proxy = start("proxy", "--triton", target, "--workers", "2", MAX_CONCURRENT_REQUESTS=3)
    proxy.wait_ready()
    with ThreadPoolExecutor(8) as pool:
        running = [pool.submit(ask, proxy, max_tokens=500) for _ in range(8)]
        statuses = sorted(one.result().status_code for one in running)
        assert statuses == [200] * 3 + [429] * 5
        scripted_stack.settled_engine("steady")
        begun = scripted_stack.begun("steady")
        drained = [pool.submit(ask, proxy, max_tokens=300) for _ in range(3)]
        eventually(lambda: scripted_stack.begun("steady") == begun + 3, 10, "they run")
        processes = proxy.workers()
        assert proxy.stop(signal.SIGTERM) == 0
        assert [one.result().json()["usage"]["completion_tokens"] for one in drained] == [300] * 3
    assert not any(process.is_running() for process in processes)


def is_refused(url: str) -> bool:
    try:
        httpx.get(f"{url}/health/ready", timeout=HANG_S)
    except httpx.ConnectError:
        return True
    except httpx.TransportError:  # it had connected before
        return False
    return False


def test_while_they_drain_a_new_caller_is_refused_at_once(scripted_stack, start):
    target = f"grpc://127.0.0.1:{scripted_stack.triton_grpc_port}"
    proxy = start("proxy", "--triton", target, "--workers", "2")
    proxy.wait_ready()
    with ThreadPoolExecutor(1) as pool:
        begun = scripted_stack.begun("steady")
        running = pool.submit(ask, proxy, max_tokens=1000)
        eventually(lambda: scripted_stack.begun("steady") > begun, 10, "it runs")
        proxy.process.send_signal(signal.SIGTERM)
        eventually(lambda: is_refused(proxy.url), 10, "new callers are refused")
        assert proxy.process.poll() is None, "it waits for what runs"
        assert running.result().json()["usage"]["completion_tokens"] == 1000
    assert proxy.process.wait(HANG_S) == 0


def test_on_few_cores_a_wake_up_takes_no_core_from_any_of_them(scripted_stack):
    server = scripted_stack.tritonserver()
    processes = [*scripted_stack.workers(), server, *server.children(recursive=True)]
    wanted = os.SCHED_BATCH if len(os.sched_getaffinity(0)) <= FEW_CORES else os.SCHED_OTHER
    threads = [thread.id for process in processes for thread in process.threads()]
    assert {os.sched_getscheduler(thread) for thread in threads} == {wanted}
