"""Triton, or one of its models, dies while requests wait for their first token, and others have
one: all of them finish once it is back.
"""

from __future__ import annotations

import json
from concurrent.futures import Future, ThreadPoolExecutor, wait
from queue import SimpleQueue

import httpx
import psutil
import pytest

from tests.fixtures.running import ROWS
from tests.fixtures.stack import HANG_S, PLAIN, Stack, eventually

WAITING, TRIES = 6, 5
RESENT = "proxy_requests_resent_total"
LONG = {"model": "endless", "prompt": "abc", "max_tokens": 2000, "temperature": 0, "stream": True}
SHORT = {**LONG, "max_tokens": 3, "stream": False}


def complete(stack: Stack, **fields: object) -> httpx.Response:
    return httpx.post(f"{stack.url}/v1/completions", json={**SHORT, **fields}, timeout=HANG_S)


def counted(stack: Stack, metric: str, model: str) -> float:
    """Of the proxy's own metrics."""
    name = f'{metric}{{model="{model}"}} '
    lines = PLAIN.get(f"{stack.url}/metrics").text.splitlines()
    return sum(float(line.removeprefix(name)) for line in lines if line.startswith(name))


def stream(stack: Stack, begun: SimpleQueue[None]) -> list[str]:
    """The lines of a long one; reports the first."""
    with PLAIN.stream("POST", f"{stack.url}/v1/completions", json=LONG) as response:
        lines = response.iter_lines()
        first = next(lines)
        assert first.startswith("data: {")
        begun.put(None)
        return [first, *lines]


def under_way(
    pool: ThreadPoolExecutor, stack: Stack
) -> tuple[list[Future[list[str]]], list[Future[httpx.Response]]]:
    """A stream in each row, which has begun, and requests behind them. A machine that is so busy
    that a stream ends before gets several tries.
    """
    for _ in range(TRIES):
        begun: SimpleQueue[None] = SimpleQueue()
        running = [pool.submit(stream, stack, begun) for _ in range(ROWS)]
        for _ in running:
            begun.get(timeout=HANG_S)
        waiting = [pool.submit(complete, stack) for _ in range(WAITING)]

        def are_there(running=running) -> bool:
            active = counted(stack, "proxy_requests_active", "endless")
            return active == ROWS + WAITING or any(one.done() for one in running)

        eventually(are_there, 60, "all are under way")
        if not any(one.done() for one in running):
            return running, waiting
        wait((*running, *waiting))
    pytest.fail("the streams end before all requests are under way")


def doomed(stack: Stack, name: str) -> list[psutil.Process]:
    return [stack.tritonserver()] if name == "tritonserver" else stack.descendants(name)


@pytest.mark.parametrize(
    "killed", ["tritonserver", "endless_engine/1/model.py", "demo_detokenizer/1/model.py"]
)
def test_requests_without_a_token_finish_and_those_with_one_continue(victim: Stack, killed: str):
    expected = complete(victim).json()["choices"]
    text = complete(victim, max_tokens=LONG["max_tokens"]).json()["choices"][0]["text"]
    before = counted(victim, RESENT, "endless")
    with ThreadPoolExecutor(ROWS + WAITING) as pool:
        running, waiting = under_way(pool, victim)
        for process in doomed(victim, killed):
            process.kill()
        eventually(lambda: not victim.is_ready(), 10, "readiness says so")
        assert PLAIN.get(f"{victim.url}/health/live").status_code == 200
        answers = [request.result() for request in waiting]
        for lines in running:
            *rest, done = [line for line in lines.result() if line]
            assert done == "data: [DONE]"
            assert ": continued 1 (endpoint lost)" in rest
            events = [line.removeprefix("data: ") for line in rest if line.startswith("data: ")]
            choices = [json.loads(event)["choices"][0] for event in events]
            assert choices[-1]["finish_reason"] == "length"
            assert "".join(choice["text"] for choice in choices) == text
    assert [answer.status_code for answer in answers] == [200] * WAITING
    assert all(answer.json()["choices"] == expected for answer in answers)
    # the others waited in the proxy, and were not lost
    assert 0 < counted(victim, RESENT, "endless") - before <= WAITING
