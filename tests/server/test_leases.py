"""A proxy that dies takes its generations with it: shown from the engine's own counters."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.fixtures.running import ROWS
from tests.fixtures.stack import HANG_S, Stack, eventually
from tests.server.test_triton_direct import Stream

STREAMS, TRIES = 20, 3
FREE_WITHIN_S = 5.0
LONG = {"prompt": "abc", "max_tokens": 4000, "ignore_eos": True, "temperature": 0, "stream": True}


def finish_reason(stack: Stack, model: str, max_tokens: int = 4000) -> str | None:
    """Of a whole stream; None where it was cut."""
    body, found = {**LONG, "model": model, "max_tokens": max_tokens}, None
    url = f"{stack.url}/v1/completions"
    try:
        with httpx.stream("POST", url, json=body, timeout=HANG_S) as response:
            for line in response.iter_lines():
                if line.startswith("data: {"):
                    (choice,) = json.loads(line.removeprefix("data: "))["choices"]
                    found = choice["finish_reason"] or found
    except httpx.TransportError:
        return None
    return found


def busy(stack: Stack, model: str) -> list[float]:
    """Rows at work, waiting requests, unfinished requests."""
    engine = stack.engine(model)
    names = ("rows_prefilling", "rows_decoding", "requests_waiting", "requests_unfinished")
    return [engine[name] for name in names]


def beside(stack: Stack, start, **settings: object) -> Stack:
    """Another proxy in front of the same Triton."""
    proxy = start("proxy", "--triton", f"grpc://127.0.0.1:{stack.triton_grpc_port}", **settings)
    proxy.wait_ready(within_s=110)
    return proxy


def test_kill_9_of_a_proxy_under_20_streams_frees_the_engine(stack, start):
    """Those that wait in the proxy end with it, and never come to the engine."""
    doomed = beside(stack, start)
    before, begun = stack.settled_engine("endless"), stack.begun("endless")
    with ThreadPoolExecutor(STREAMS) as pool:
        streams = [pool.submit(finish_reason, doomed, "endless") for _ in range(STREAMS)]
        eventually(lambda: stack.begun("endless") >= begun + ROWS, 30, "the engine is at work")
        doomed.process.kill()
        eventually(
            lambda: not any(busy(stack, "endless")), FREE_WITHIN_S, "rows and queue are free"
        )
        ends = [one.result() for one in streams]
    after = stack.settled_engine("endless")
    cancelled = after["requests_cancelled"] - before["requests_cancelled"]
    assert 0 < cancelled <= ends.count(None)
    came = stack.begun("endless") - begun
    assert after["requests_finished"] - before["requests_finished"] == came - cancelled
    assert after["generated_tokens"] - before["generated_tokens"] < STREAMS * LONG["max_tokens"]


def test_the_streams_of_another_proxy_go_on(scripted_stack, start):
    doomed = beside(scripted_stack, start)
    cancelled = scripted_stack.settled_engine("steady")["requests_cancelled"] + 4
    with ThreadPoolExecutor(8) as pool:
        begun = scripted_stack.begun("steady")
        lost = [pool.submit(finish_reason, doomed, "steady") for _ in range(4)]
        kept = [pool.submit(finish_reason, scripted_stack, "steady", 500) for _ in range(4)]
        eventually(lambda: scripted_stack.begun("steady") == begun + 8, 30, "all are there")
        doomed.process.kill()
        assert [one.result() for one in kept] == ["length"] * 4
        assert [one.result() for one in lost] == [None] * 4
    assert scripted_stack.settled_engine("steady")["requests_cancelled"] == cancelled


def test_a_proxy_that_stands_still_for_two_seconds_keeps_its_streams(scripted_stack, start):
    slow = beside(scripted_stack, start)
    with ThreadPoolExecutor(4) as pool:
        begun = scripted_stack.begun("steady")
        streams = [pool.submit(finish_reason, slow, "steady", 1000) for _ in range(4)]
        eventually(lambda: scripted_stack.begun("steady") == begun + 4, 30, "all are there")
        slow.process.send_signal(signal.SIGSTOP)
        time.sleep(2)
        slow.process.send_signal(signal.SIGCONT)
        assert [one.result() for one in streams] == ["length"] * 4


@pytest.fixture
def direct(stack) -> Iterator[Stream]:
    made = Stream(f"127.0.0.1:{stack.triton_grpc_port}")
    yield made
    made.client.stop_stream(cancel_requests=True)
    made.client.close()


def is_cut_by_its_lease(stack: Stack, direct: Stream, lease: str) -> bool:
    """A request that runs when its lease ends; False where the machine was so slow that it came to
    its end before.
    """
    holder = Stream(f"127.0.0.1:{stack.triton_grpc_port}")
    holder.send(
        "endless_engine", lease,
        input_ids=("INT32", [0]), request_output_len=("INT32", [0]), lease=("BOOL", [True]),
    )  # fmt: skip
    before = stack.settled_engine("endless")
    direct.send("endless", f"{lease}-1", {"lease": lease}, text_input=("BYTES", [b"abc"]))
    next(answers := direct.answers())
    holder.client.stop_stream(cancel_requests=True)
    list(answers)
    after = stack.settled_engine("endless")
    return after["requests_cancelled"] == before["requests_cancelled"] + 1


def test_a_request_that_comes_after_its_lease_is_over_never_runs(stack, direct):
    leases = (f"lost-{number}" for number in range(TRIES))
    lease = next(lease for lease in leases if is_cut_by_its_lease(stack, direct, lease))
    before = stack.settled_engine("endless")
    direct.send("endless", "late", {"lease": lease}, text_input=("BYTES", [b"abc"]))
    assert list(direct.answers()) == []
    cancelled = before["requests_cancelled"] + 1
    eventually(lambda: stack.engine("endless")["requests_cancelled"] == cancelled, 5, "it is gone")


def test_the_engine_ends_a_request_at_its_deadline_also_one_that_waits(stack, direct):
    """More than there are rows, for a client that stops none of them."""
    before = stack.settled_engine("endless")
    for number in range(STREAMS):
        direct.send(
            "endless", f"late-{number}",
            text_input=("BYTES", [b"abc"]), timeout_ms=("INT32", [300]),
            max_tokens=("INT32", [4000]), ignore_eos=("BOOL", [True]),
        )  # fmt: skip
    errors = []
    while len(errors) < STREAMS:
        _, error = direct.messages.get(timeout=HANG_S)
        errors += [str(error)] * (error is not None)
    assert all('"deadline_exceeded"' in error for error in errors)
    after = stack.settled_engine("endless")
    assert after["requests_cancelled"] - before["requests_cancelled"] == STREAMS
