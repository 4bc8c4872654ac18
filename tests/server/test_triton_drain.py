"""`triton-openai triton` at a stop: running streams end, and its proxies take nothing new."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

import httpx
import pytest

from tests.fixtures.stack import HANG_S, Stack, eventually

STREAMS = 20
TOKENS = 600  # at 6 ms a step: some seconds
MESSAGES = [{"role": "user", "content": "Hello!"}]


def ask(proxy: Stack, tokens: int) -> httpx.Response:
    body = {"model": "steady", "messages": MESSAGES, "max_tokens": tokens}
    return httpx.post(f"{proxy.url}/v1/chat/completions", json=body, timeout=HANG_S)


def readiness(proxy: Stack) -> tuple[int, str]:
    found = httpx.get(f"{proxy.url}/health/ready", timeout=HANG_S)
    return found.status_code, found.text


@pytest.fixture
def pair(start, scripted_stack):
    """Starts a Triton with settings of its own, and a proxy before it, of the scripted models."""

    def run(**settings: object) -> tuple[Stack, Stack]:
        place = {"ARTIFACTS_DIR": scripted_stack.artifacts}
        place["MODELS_FILE"] = scripted_stack.artifacts / "models.yaml"
        triton = start("triton", **place, **settings)
        target = f"grpc://127.0.0.1:{triton.triton_grpc_port}"
        # no Triton comes back to continue what this one cuts, or to get what has no token yet: a
        # request that comes after its end would wait for the next one
        impatient = {"CONTINUE_WITHIN_S": 1, "MAX_RESENDS": 0, "REQUEST_TIMEOUT_S": 60}
        proxy = start("proxy", "--triton", target, **impatient, **place)

        def are_up() -> bool:
            assert triton.process.poll() is None, triton.log.read_text()[-3000:]
            return proxy.is_ready()

        eventually(are_up, 120, f"ready: see {proxy.log}")
        return triton, proxy

    return run


def busy(
    triton: Stack, proxy: Stack, pool: ThreadPoolExecutor, tokens: int
) -> list[Future[httpx.Response]]:
    before = triton.begun("steady")
    running = [pool.submit(ask, proxy, tokens) for _ in range(STREAMS)]

    def are_at_the_engine() -> bool:
        ended = [one.result() for one in running if one.done()]
        assert all(one.status_code == httpx.codes.OK for one in ended), [one.text for one in ended]
        return triton.begun("steady") >= before + STREAMS

    eventually(are_at_the_engine, 20, "all are at the engine")
    return running


def test_running_streams_end_and_its_proxy_refuses_new_work_meanwhile(pair):
    triton, proxy = pair(DRAIN_TIMEOUT_S=120)
    with ThreadPoolExecutor(STREAMS) as pool:
        running = busy(triton, proxy, pool, TOKENS)
        triton.begin_to_stop()
        eventually(lambda: readiness(proxy)[0] == 503, 20, "the proxy is not ready")
        assert "Triton is stopping" in readiness(proxy)[1]
        refused = ask(proxy, 1)
        assert triton.process.poll() is None, "it waits for what runs"
        ended = [one.result() for one in running]
    assert (refused.status_code, refused.headers["x-should-retry"]) == (503, "true")
    assert int(refused.headers["retry-after"]) > 0
    assert [one.status_code for one in ended] == [200] * STREAMS
    assert {one.json()["usage"]["completion_tokens"] for one in ended} == {TOKENS}
    assert triton.process.wait(HANG_S) == 0
