"""Verifies what readers of an answer get whose generating proxy is killed: an error in the form of
their protocol, and the protocol's end.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from redis import Redis
from starlette.testclient import TestClient

from proxy.api.http.idempotency import LOST
from proxy.state.redis_connection import PREFIX
from tests.api.conftest import serving
from tests.doubles.dying_engine import StoppableEngine
from tests.doubles.key_source import PEPPER, KeysInMemory
from tests.fixtures.redis_server import needs_redis, running
from tests.fixtures.stack import HANG_S, eventually

CHAT = {"model": "demo", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 60}
STREAM = {**CHAT, "stream": True}
PLAIN = {"model": "demo", "messages": CHAT["messages"]}
CASES: dict[str, tuple[dict[str, Any], str, str]] = {  # path: body, how the error begins, the end
    "/v1/chat/completions": (STREAM, 'data: {"error":', "data: [DONE]\n\n"),
    "/v1/completions": (
        {"model": "demo", "prompt": "hi", "max_tokens": 60, "stream": True},
        'data: {"error":',
        "data: [DONE]\n\n",
    ),
    "/v1/responses": (
        {"model": "demo", "input": "hi", "store": True, "stream": True},
        "event: error\ndata: {",
        "data: [DONE]\n\n",
    ),
    "/v1/messages": (STREAM, 'event: error\ndata: {"type":"error"', "}\n\n"),
    "/chat/sse": (PLAIN, "event: error\ndata: {", "data: [DONE]\n\n"),
    "/chat/stream": (PLAIN, '{"error":', "}\n"),
}
ANSWERS = f"{PREFIX}{{kept-answers}}:"
pytestmark = needs_redis


@pytest.fixture(scope="module")
def pair(tmp_path_factory) -> Iterator[tuple[TestClient, TestClient, StoppableEngine, Redis]]:
    """The proxy that generates, one that reads, and what they share."""
    folder, keys = tmp_path_factory.mktemp("lost"), KeysInMemory()
    key = {"authorization": f"Bearer {keys.add('own1')}"}
    engine = StoppableEngine("It goes on and on.", held=3)
    with (
        running(folder) as server,
        Redis.from_url(server.url) as redis,
        serving(folder) as serve,
    ):
        shared = {"keys": keys, "key_pepper": PEPPER, "ledger_url": server.url}
        clients = [serve(engine, **shared) for _ in range(2)]
        for client in clients:
            client.headers.update(key)
        yield *clients, engine, redis


@pytest.mark.parametrize("path", CASES)
def test_a_reader_gets_an_error_event_and_the_end(pair, path):
    one, other, engine, redis = pair
    body, begin, end = CASES[path]
    once = {"idempotency-key": path}
    engine.may_end.clear()
    before, copies = len(redis.keys(f"{ANSWERS}w:*")), {*redis.keys(f"{ANSWERS}p:*")}

    def has_parts() -> bool:
        return any(redis.xlen(each) > 1 for each in {*redis.keys(f"{ANSWERS}p:*")} - copies)

    with ThreadPoolExecutor(2) as threads:
        own = threads.submit(one.post, path, json=body, headers=once)
        eventually(has_parts, HANG_S, "it is generated")
        read = threads.submit(other.post, path, json=body, headers=once)
        eventually(lambda: len(redis.keys(f"{ANSWERS}w:*")) > before, HANG_S, "it is read")
        redis.delete(*redis.keys(f"{ANSWERS}r:*"))  # as when the lease of a killed proxy ends
        lost = read.result(HANG_S)
        engine.may_end.set()
        whole = own.result(HANG_S)
    assert (lost.status_code, lost.headers["idempotent-replayed"]) == (200, "true")
    assert lost.text.endswith(end)
    place = lost.text.rindex(begin)
    assert whole.text.startswith(lost.text[:place])
    assert place, "the reader had some of the answer"
    line = lost.text[place:].removesuffix("data: [DONE]\n\n").strip().rpartition("\n")[2]
    told = json.loads(line.removeprefix("data: "))
    assert LOST in json.dumps(told)


def test_an_answer_in_one_piece_that_has_not_begun_has_a_status(pair):
    one, other, engine, redis = pair
    once = {"idempotency-key": "whole"}
    engine.may_end.clear()
    before, sent = len(redis.keys(f"{ANSWERS}w:*")), len(engine.requests)
    with ThreadPoolExecutor(2) as threads:
        own = threads.submit(one.post, "/v1/chat/completions", json=CHAT, headers=once)
        eventually(lambda: len(engine.requests) > sent, HANG_S, "it is generated")
        read = threads.submit(other.post, "/v1/chat/completions", json=CHAT, headers=once)
        eventually(lambda: len(redis.keys(f"{ANSWERS}w:*")) > before, HANG_S, "it is read")
        redis.delete(*redis.keys(f"{ANSWERS}r:*"))
        lost = read.result(HANG_S)
        engine.may_end.set()
        own.result(HANG_S)
    assert (lost.status_code, lost.json()["error"]["message"]) == (503, LOST)
