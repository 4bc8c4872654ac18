"""Clients that leave adopted models, as the engines' own counters show it; and models that die:
after all other tests of this tritonserver, so this file's name is the last one.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import httpx
import pytest

from tests.fixtures.stack import HANG_S, PLAIN, eventually
from tests.server.adopted.conftest import ENDLESS, ENGINES, KINDS, MESSAGES, Adopted, greedy, over

TOKENS = 3000  # at 6 ms each, longer than any test
STOPPED = ["vllm", "llmapi", "cpp", "team"]


def begin(adopted: Adopted, http: httpx.Client, kind: str, **fields: object):
    body = {**greedy(kind), "messages": ENDLESS, "max_tokens": TOKENS, "stream": True, **fields}
    return http.stream("POST", f"{adopted.proxy.url}/v1/chat/completions", json=body)


def read(lines, count: int) -> str:
    """The text of the next so many chunks."""
    found = []
    for line in lines:
        if line.startswith("data: {"):
            chunk = json.loads(line[6:])
            assert "error" not in chunk, chunk
            found += [one["delta"].get("content") or "" for one in chunk["choices"]]
            if len(found) >= count:
                break
    return "".join(found)


@pytest.fixture
def http():
    with httpx.Client(timeout=HANG_S, trust_env=False) as made:
        yield made


def assert_frees(adopted: Adopted, kinds: list[str], stop: Callable[[str], None], most: float):
    """Of all kinds at once. most: tokens that an engine may have generated."""

    def assert_one(kind: str) -> None:
        before = adopted.wait_idle(kind)
        stop(kind)
        after = adopted.wait_idle(kind)
        assert after["requests_cancelled"] == before["requests_cancelled"] + 1, kind
        assert after["generated_tokens"] - before["generated_tokens"] < most, kind

    with ThreadPoolExecutor(len(kinds)) as pool:
        list(pool.map(assert_one, kinds))


def test_a_client_that_leaves_a_stream_frees_the_engine(adopted, http):
    def stop(kind: str) -> None:
        with begin(adopted, http, kind) as answer:
            assert read(answer.iter_lines(), 5)

    assert_frees(adopted, STOPPED, stop, TOKENS / 4)


def test_a_stop_string_frees_the_engine(adopted, http):
    def stop(kind: str) -> None:
        with begin(adopted, http, kind, stop=["anew. Gr"]) as answer:
            assert read(answer.iter_lines(), 10**6) == "And then it began "

    assert_frees(adopted, STOPPED, stop, TOKENS / 4)


def test_a_client_that_leaves_without_a_stream_frees_the_engine(adopted, http):
    def stop(kind: str) -> None:
        body = {**greedy(kind), "messages": ENDLESS, "max_tokens": TOKENS}
        with pytest.raises(httpx.ReadTimeout):
            http.post(f"{adopted.proxy.url}/v1/chat/completions", json=body, timeout=2)

    assert_frees(adopted, [*STOPPED, "llmapi_whole"], stop, TOKENS / 2)


def test_bls_goes_on_without_its_client(adopted, http):
    """It calls its engine under an id of its own, and never asks whether its client is there."""
    before = adopted.wait_idle("bls")
    with begin(adopted, http, "bls", max_tokens=200) as answer:
        assert read(answer.iter_lines(), 5)
    after = adopted.wait_idle("bls")
    assert after["requests_finished"] == before["requests_finished"] + 1
    assert after["generated_tokens"] - before["generated_tokens"] == 200


def test_models_whose_processes_are_killed_fail_alone(adopted, start, http):
    """Triton does not start them again; whoever runs it must. Streams that hang come to an end."""
    adopted = over(adopted.triton, start, STALL_TIMEOUT_S=3, REQUEST_TIMEOUT_S=8)
    killed = ["vllm", "llmapi", "cpp"]
    ends: dict[str, str] = {}

    def hang(kind: str, is_begun: threading.Event) -> None:
        with begin(adopted, http, kind) as answer:
            lines = answer.iter_lines()
            assert read(lines, 5)
            is_begun.set()
            ends[kind] = [line for line in lines if line.startswith("data: {")][-1]

    begun = {kind: threading.Event() for kind in killed}
    threads = [threading.Thread(target=hang, args=one) for one in begun.items()]
    for thread in threads:
        thread.start()
    assert all(one.wait(HANG_S) for one in begun.values())
    for kind in killed:
        (process,) = adopted.triton.descendants(f" {ENGINES[kind]}_0_0 ")
        process.kill()
    for thread in threads:
        thread.join(HANG_S)
    assert ends.keys() == {*killed}
    assert all("error" in json.loads(end[6:]) for end in ends.values())
    dead = (*killed, "bls", "bls_sum")
    for kind in {*KINDS}.difference(dead):  # rarely all of Triton waits for what a dead one locked
        eventually(lambda kind=kind: _asked(adopted, kind) == 200, 5, f"an answer of {kind}")
    with ThreadPoolExecutor(len(dead)) as pool:
        assert {*pool.map(partial(_asked, adopted), dead)} <= {503, 504}


def _asked(adopted: Adopted, kind: str) -> int:
    body = {**greedy(kind), "messages": MESSAGES, "max_tokens": 5}
    return PLAIN.post(f"{adopted.proxy.url}/v1/chat/completions", json=body).status_code
