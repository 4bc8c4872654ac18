"""Rounds of faults on a pool of two real vLLM engines, while callers compare their answers.

usage: python -m pytest tests/long/vllm/test_own_faults.py     SOAK_SECONDS decides the rounds
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from tests.fixtures.pool_load import HEADERS, Callers, text_of, until
from tests.fixtures.stack import Stack
from tests.long.vllm.own import PROMPTS, START_S, VLLM, Pair, address_of, is_alive, vllm_processes

TOKENS = 400
PATH = "/v1/completions"
GREEDY = {"temperature": 0, "ignore_eos": True}
KINDS: tuple[dict[str, Any], ...] = (
    *({**GREEDY, "prompt": prompt} for prompt in PROMPTS),
    {"prompt": "Hello", "seed": 5, "temperature": 1.0, "ignore_eos": True},
    {**GREEDY, "prompt": "Hello", "guided_regex": "[a-z]{300}"},
)
AT_ONCE = 1  # callers of each kind
INEXACT = "It cannot be continued, because the engine cannot restore"
WRONG: tuple[dict[str, Any], ...] = (
    {"temperature": 9},
    {"temperature": 1.5, "logit_bias": {"2048": 1}},
    {"max_tokens": 10**6},
    {"guided_regex": "("},
    {"prompt": [10**6]},
    {"model": "nobody"},
    {"top_p": 0.5, "temperature": 2, "repetition_penalty": 0},
)
FAULTS = ("the stub", "tritonserver", "a hang")
# A caller that reads one line, says so, and is then killed.
CALLER = """
import http.client, json, sys, time
host, body, headers = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
one = http.client.HTTPConnection(host)
one.request("POST", "/v1/completions", body, {**headers, "content-type": "application/json"})
answer = one.getresponse()
while not (line := answer.readline()).startswith(b"data: "):  # others keep the connection alive
    assert line
print(line, flush=True)
time.sleep(3600)
"""


class Rounds:
    """counts: what has happened; failures: what must not."""

    def __init__(self, pair: Pair, callers: Callers) -> None:
        self.counts: Counter[str] = Counter()
        self.failures: list[str] = []
        self._pair = pair
        self._callers = callers
        self._expected: list[str] = []

    async def continued(self) -> int:
        lost, silent = [await self._callers.continued(cause=one) for one in ("lost", "stalled")]
        return lost + silent

    async def learn(self) -> None:
        """The undisturbed answers."""
        found = await asyncio.gather(*(self._callers.stream(TOKENS, **kind) for kind in KINDS))
        self._expected = [text_of(events) for events in found]

    @asynccontextmanager
    async def load(self) -> AsyncIterator[None]:
        is_over = asyncio.Event()

        async def calls(number: int) -> None:
            while not is_over.is_set():
                await self._compare(number)

        tasks = [
            asyncio.create_task(calls(one)) for one in range(len(KINDS)) for _ in range(AT_ONCE)
        ]
        try:
            yield
        finally:
            is_over.set()
            await asyncio.gather(*tasks)

    async def _compare(self, number: int) -> None:
        kind = KINDS[number]
        events = await self._callers.stream(TOKENS, **kind)
        error = events[-1].get("error")
        is_inexact = "seed" in kind or "guided_regex" in kind
        if error is not None and is_inexact and INEXACT in error["message"]:
            self.counts["refused to go on, by name"] += 1
        elif error is None and text_of(events) == self._expected[number]:
            self.counts["streams with the undisturbed text"] += 1
        else:
            self.failures.append(f"{kind}: {error or text_of(events)}")

    async def round(self, number: int) -> None:
        """The busiest engine is lost, and comes back; meanwhile callers are killed, leave, and send
        wrong requests.
        """
        fault = FAULTS[number % len(FAULTS)]
        for one in self._pair.tritons:
            await self._callers.until_state(address_of(one), "ready")
        began = self._callers.began

        async def are_in_the_middle() -> bool:
            return self._callers.began >= began + len(KINDS) // 2

        await until(are_in_the_middle, "streams have tokens")
        streams = await self._callers.streams()
        victim = self._pair.at(max(streams, key=streams.__getitem__))
        processes, starts = vllm_processes(victim), started(victim)
        lose(victim, fault)
        self.counts[f"loss of {fault}"] += 1
        await self._mischief()

        async def is_back() -> bool:
            return started(victim) > starts

        await until(is_back, "it is back", START_S)
        if leaked := [one for one in processes if is_alive(one)]:
            self.failures.append(f"after {fault}: {leaked}")

    async def _mischief(self) -> None:
        await asyncio.gather(
            *(self._leave() for _ in range(4)),
            *(asyncio.to_thread(self._killed_caller) for _ in range(2)),
            *(self._err(more) for more in WRONG),
        )

    async def _leave(self) -> None:
        body = {"model": VLLM, **KINDS[0], "max_tokens": 2000, "stream": True}
        async with self._callers.client.stream("POST", PATH, json=body) as answer:
            await anext(answer.aiter_lines())
        self.counts["callers that left"] += 1

    def _killed_caller(self) -> None:
        body = json.dumps({"model": VLLM, **KINDS[1], "max_tokens": 2000, "stream": True})
        host = self._callers.client.base_url.netloc.decode()
        command = [sys.executable, "-c", CALLER, host, body, json.dumps(HEADERS)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            if b"data: " not in (line := process.stdout.readline()):
                self.failures.append(f"a caller that was to be killed read {line!r}")
            process.kill()
        self.counts["callers that were killed"] += 1

    async def _err(self, more: dict[str, Any]) -> None:
        answer: httpx.Response = await self._callers.whole(**{"tokens": 5, **more})
        if answer.status_code not in (400, 404) or not answer.json()["error"]["code"]:
            self.failures.append(f"{more}: {answer.status_code} {answer.text}")
        self.counts["wrong requests"] += 1


def started(triton: Stack) -> int:
    """How often its tritonserver became ready."""
    return triton.log.read_text().count("tritonserver is ready after")


def lose(triton: Stack, fault: str) -> None:
    match fault:
        case "the stub":
            triton.engine_processes(VLLM)[0].kill()
        case "tritonserver":
            triton.tritonserver().kill()
        case _:
            for one in vllm_processes(triton):
                one.suspend()
