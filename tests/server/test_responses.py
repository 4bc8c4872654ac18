"""Responses in the background on a real engine: they survive kill -9 of Triton and of the proxy."""

from __future__ import annotations

import json
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx

from tests.api.responses.formats import events, folded, settled
from tests.fixtures.redis_server import needs_redis, running
from tests.fixtures.running import ROWS, Start
from tests.fixtures.stack import HANG_S, PLAIN, Stack, halted

PATH = "/v1/responses"
OPENING = ("created", "queued", "in_progress")
TOKENS = 500  # a slow test is still in the middle of them
AT_ONCE = 2 * ROWS  # so that half of them wait when something is killed
REQUEST: dict[str, Any] = {
    "model": "endless",
    "input": "Tell me about the sea.",
    "seed": 11,
    "temperature": 1.0,
    "max_output_tokens": TOKENS,
    "ignore_eos": True,
    "background": True,
}


def begin(url: str, **fields: object) -> str:
    response = PLAIN.post(f"{url}{PATH}", json={**REQUEST, **fields})
    assert response.status_code == 200, response.text
    return response.json()["id"]


def begin_all(url: str, triton: Stack) -> list[str]:
    """All are in the middle, or wait: the engine stands still meanwhile."""
    with halted(triton.engine_processes("endless")), ThreadPoolExecutor(AT_ONCE) as threads:
        return list(threads.map(lambda _: begin(url), range(AT_ONCE)))


def written(url: str, response_id: str, after: int | None = None) -> list[dict[str, Any]]:
    """The events, once the response has ended."""
    query = {} if after is None else {"starting_after": after}
    response = httpx.get(
        f"{url}{PATH}/{response_id}", params={"stream": True, **query}, timeout=HANG_S
    )
    assert response.status_code == 200, response.text
    return events(response.text)


def until_it_writes(url: str, response_id: str, events_: int = 6) -> list[str]:
    """Reads so many events, and leaves."""
    lines = []
    with httpx.stream(
        "GET", f"{url}{PATH}/{response_id}", params={"stream": True}, timeout=HANG_S
    ) as response:
        for line in response.iter_lines():
            lines += [line] if line.startswith("data: ") else []
            if len(lines) == events_:
                break
    return lines


def alone(stack: Stack) -> dict[str, Any]:
    """What the request is answered with by a stack that lives."""
    done = folded(written(stack.url, begin(stack.url)), opening=OPENING)
    assert done["usage"]["output_tokens"] == TOKENS
    return settled(done)


def as_undisturbed(done: dict[str, Any]) -> dict[str, Any]:
    """The engine counts the cached prompt of the process that it continues."""
    found = settled(done)
    found["usage"]["input_tokens_details"] = {"cached_tokens": 0, "cache_write_tokens": 0}
    return found


@needs_redis
def test_a_response_is_continued_when_the_proxy_that_began_it_is_killed(
    start: Start, stack: Stack, tmp_path: Path
):
    undisturbed = alone(stack)
    target = f"grpc://127.0.0.1:{stack.triton_grpc_port}"
    with running(tmp_path) as redis:
        settings = {"LEDGER_URL": redis.url, "LEDGER_TIMEOUT_MS": 30_000}
        victim, other = (start("proxy", "--triton", target, **settings) for _ in range(2))
        for proxy in (victim, other):
            proxy.wait_ready()
        before = stack.begun("endless")
        response_id, *others = begin_all(victim.url, stack)
        seen = until_it_writes(victim.url, response_id)
        victim.stop(signal.SIGKILL)
        found = written(other.url, response_id)
        assert [json.loads(line.removeprefix("data: ")) for line in seen] == found[: len(seen)]
        for each in (found, *(written(other.url, one) for one in others)):
            assert as_undisturbed(folded(each, opening=OPENING)) == as_undisturbed(undisturbed)
        assert written(other.url, response_id, after=len(found) - 2) == found[-1:]
        kept = PLAIN.get(f"{other.url}{PATH}/{response_id}").json()
        assert kept == found[-1]["response"]
        other.stop()
    assert stack.begun("endless") - before > AT_ONCE
    stack.settled_engine("endless")


def test_a_response_is_continued_when_triton_is_killed(victim: Stack):
    undisturbed = alone(victim)
    responses = begin_all(victim.url, victim)
    until_it_writes(victim.url, responses[0])
    victim.tritonserver().kill()
    for found in [written(victim.url, each) for each in responses]:
        assert as_undisturbed(folded(found, opening=OPENING)) == as_undisturbed(undisturbed)
    assert victim.begun("endless") >= AT_ONCE - ROWS  # of the new process


def test_a_cancelled_response_leaves_its_row(stack: Stack):
    response_id = begin(stack.url, max_output_tokens=1800)
    until_it_writes(stack.url, response_id)
    ended = PLAIN.post(f"{stack.url}{PATH}/{response_id}/cancel").json()
    assert ended["status"] == "cancelled"
    assert ended["output"][0]["content"][0]["text"]
    stack.settled_engine("endless")
    assert PLAIN.delete(f"{stack.url}{PATH}/{response_id}").json()["deleted"] is True
