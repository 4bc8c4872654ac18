"""Adopted vLLM models keep their promises where a real vLLM engine dies or hangs.

VLLM_BACKEND names the backend's files, such as src/ of NVIDIA's repository: see `server`.
"""

from __future__ import annotations

import asyncio
import json
import random
import statistics
import sys
import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import httpx
import psutil
import pytest

from tests.fixtures.pool_load import HEADERS
from tests.fixtures.stack import HANG_S, PLAIN, Stack, eventually
from tests.long.vllm.adopted_pair import (
    PROBE_EVERY_S,
    PROBE_TIMEOUT_S,
    READS,
    TENANT,
    UP,
    AdoptedPair,
    core_of,
    stub_of,
    worker_of,
)

pytestmark = [pytest.mark.xdist_group("adopted_vllm"), pytest.mark.timeout(1800)]

MESSAGES = [{"role": "user", "content": "Tell me about Rome."}]
CITY = {"type": "string", "minLength": 1000}  # so that no answer ends before its engine
PARAMETERS = {"type": "object", "properties": {"city": CITY}, "required": ["city"]}
TOOL = {"type": "function", "function": {"name": "visit", "parameters": PARAMETERS}}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "one", "schema": PARAMETERS}}
TOKENS = 160
LONG = {"min_tokens": TOKENS}
COMPLETION = {
    "model": "by_ids",
    "prompt": "Once upon a time",
    "temperature": 0,
    "max_tokens": TOKENS,
}
CHAT = {"model": "by_ids", "messages": MESSAGES, "temperature": 0, "max_tokens": TOKENS}
EXACT: dict[str, dict[str, Any]] = {
    "a completion": {**COMPLETION, **LONG},
    "a chat": {**CHAT, **LONG},
    "log-probabilities": {**COMPLETION, **LONG, "logprobs": 3},
    "two choices": {**COMPLETION, **LONG, "n": 2},
    "tools": {**CHAT, **LONG, "tools": [TOOL]},
    "a repetition penalty": {**COMPLETION, **LONG, "repetition_penalty": 1.1},
    "greedy by top_k": {**COMPLETION, **LONG, "temperature": 1, "top_k": 1, "seed": 3},
    # texts whose beginnings all have the tokens of the answer
    "by its text": {**COMPLETION, **LONG, "model": "by_text", "prompt": "The weather in Rome"},
    "by its text, with log-probabilities": {
        **{**COMPLETION, **LONG, "model": "by_text", "logprobs": 2},
        "prompt": "What is a proxy?",
    },
}
GUIDE = "the engine cannot restore the state of a guide"
ENDS: dict[str, tuple[dict[str, Any], str]] = {
    "a schema": ({**CHAT, "response_format": SCHEMA}, GUIDE),
    "a required tool": ({**CHAT, "tools": [TOOL], "tool_choice": "required"}, GUIDE),
    "an expression": ({**COMPLETION, "guided_regex": "[a-z]{150}"}, GUIDE),
    "a schema, by its text": ({**CHAT, "model": "by_text", "response_format": SCHEMA}, GUIDE),
    "a seed": ({**COMPLETION, **LONG, "temperature": 1, "seed": 4}, "random numbers of a seed"),
    "penalties": ({**COMPLETION, **LONG, "presence_penalty": 0.5}, "presence and frequency"),
    "bad words": ({**COMPLETION, **LONG, "bad_words": ["shop"]}, "a bad word may begin"),
    "continue: none": ({**COMPLETION, **LONG, "model": "never"}, "the server is configured so"),
    "no tokenizer": ({**COMPLETION, **LONG, "model": "bare"}, "the model reports no token ids"),
}
PROCESSES = {"the stub": stub_of, "EngineCore": core_of, "its worker": worker_of}
KILLED = ("tritonserver", *PROCESSES)


@pytest.fixture(scope="module")
def pair(start, interpreter) -> AdoptedPair:
    return AdoptedPair(start, interpreter)


@dataclass
class Answer:
    """What one stream answered. texts, tools: by choice."""

    texts: dict[int, str] = field(default_factory=lambda: defaultdict(str))
    log_probs: list[tuple[str, float]] = field(default_factory=list)
    finishes: dict[int, str] = field(default_factory=dict)
    comments: list[str] = field(default_factory=list)
    error: str | None = None
    events: int = 0

    def see(self, line: str) -> None:
        if line.startswith(": "):
            self.comments.append(line)
        if not line.startswith("data: {"):
            return
        event = json.loads(line.removeprefix("data: "))
        if "error" in event:
            self.error = event["error"]["message"]
            return
        self.events += 1
        for choice in event["choices"]:
            self._add(choice["index"], choice)

    def _add(self, index: int, choice: dict[str, Any]) -> None:
        delta = choice.get("delta", {})
        self.texts[index] += choice.get("text") or delta.get("content") or ""
        self.texts[index] += json.dumps(delta["tool_calls"]) if delta.get("tool_calls") else ""
        if found := choice.get("logprobs"):
            listed = found.get("content") or zip(
                found["tokens"], found["token_logprobs"], strict=True
            )
            for one in listed:
                token, value = (one["token"], one["logprob"]) if isinstance(one, dict) else one
                self.log_probs.append((token, value))
        if choice["finish_reason"]:
            self.finishes[index] = choice["finish_reason"]

    @property
    def continued(self) -> list[str]:
        return [one for one in self.comments if "continued" in one]


class Streams:
    """One for each body, at the same time."""

    def __init__(self, proxy: Stack, bodies: dict[str, dict[str, Any]]) -> None:
        self.answers = {name: Answer() for name in bodies}
        self._client = httpx.AsyncClient(
            base_url=proxy.url, headers=HEADERS, timeout=HANG_S, limits=httpx.Limits()
        )
        self._tasks = [asyncio.create_task(self._one(*one)) for one in bodies.items()]

    async def _one(self, name: str, body: dict[str, Any]) -> None:
        path = "/v1/chat/completions" if "messages" in body else "/v1/completions"
        async with self._client.stream("POST", path, json={**body, "stream": True}) as response:
            assert response.status_code == 200, await response.aread()
            async for line in response.aiter_lines():
                self.answers[name].see(line)

    async def until_begun(self) -> None:
        """They have texts."""
        while not all(any(one.texts.values()) for one in self.answers.values()):
            assert not any(one.error or one.finishes for one in self.answers.values())
            await asyncio.sleep(0.005)

    async def ended(self) -> dict[str, Answer]:
        await asyncio.gather(*self._tasks)
        await self._client.aclose()
        return self.answers


def answered(proxy: Stack, bodies: dict[str, dict[str, Any]]) -> dict[str, Answer]:
    async def run() -> dict[str, Answer]:
        return await Streams(proxy, bodies).ended()

    return asyncio.run(run())


@pytest.fixture(scope="module")
def bodies(pair) -> dict[str, dict[str, Any]]:
    """The bodies whose answers continue exactly; a stop string comes after the middle."""
    endless = {**COMPLETION, "ignore_eos": True}
    whole = answered(pair.proxy, {"whole": endless})["whole"].texts[0]
    late = (whole[at:][:9] for at in range(len(whole) * 2 // 3, len(whole)))
    stop = next(one for one in late if whole.find(one) > len(whole) / 2)
    return {**EXACT, "a stop string": {**endless, "stop": [stop]}}


@pytest.fixture(scope="module")
def undisturbed(pair, bodies) -> dict[str, Answer]:
    found = answered(pair.proxy, bodies)
    assert not any(one.error or one.continued for one in found.values())
    assert found["a stop string"].finishes == {0: "stop"}
    return found


def log_lines(proxy: Stack, event: str) -> list[dict[str, Any]]:
    lines = (json.loads(one) for one in proxy.log.read_text().splitlines() if one[:1] == "{")
    return [one for one in lines if one["event"] == event]


@pytest.mark.parametrize("what", KILLED)
def test_streams_continue_exactly_after_kill_9_or_say_why_not(pair, bodies, undisturbed, what):
    victim, _ = pair.tritons
    chances = random.Random(what)
    asked = {**bodies, **{name: body for name, (body, _) in ENDS.items()}}
    before = len(log_lines(pair.proxy, "stream continues"))

    async def run() -> dict[str, Answer]:
        pair.only(victim, True)
        streams = Streams(pair.proxy, asked)
        await streams.until_begun()
        pair.only(victim, False)
        await asyncio.sleep(chances.random())
        if what == "tritonserver":
            await asyncio.to_thread(pair.kill, victim)
        else:
            PROCESSES[what](victim).kill()
        return await streams.ended()

    found = asyncio.run(run())
    for name, (_, reason) in ENDS.items():
        assert reason in (found[name].error or ""), name
    for name, was in undisturbed.items():
        now = found[name]
        assert now.error is None, (name, now.error)
        assert now.texts == was.texts, name
        assert now.finishes == was.finishes, name
        by = ", by its text" if name.startswith("by") else ""
        counts = range(1, len(was.texts) + 1)
        assert now.continued == [f": continued {one} (endpoint lost{by})" for one in counts], name
        assert [one for one, _ in now.log_probs] == [one for one, _ in was.log_probs]
        values = [value for _, value in was.log_probs]
        assert [value for _, value in now.log_probs] == pytest.approx(values, abs=1e-3)
    lines = log_lines(pair.proxy, "stream continues")[before:]
    assert {one["by"] for one in lines} == {"ids", "text"}
    pair.replace(victim)


def test_the_head_of_a_whole_answer_says_by_what_it_continued(pair):
    victim, _ = pair.tritons
    body = {**EXACT["a chat"], "max_tokens": 4 * TOKENS, "min_tokens": 4 * TOKENS}

    async def run() -> tuple[httpx.Response, httpx.Response]:
        async with httpx.AsyncClient(
            base_url=pair.proxy.url, headers=HEADERS, timeout=HANG_S
        ) as client:
            undisturbed = await client.post("/v1/chat/completions", json=body)
            await asyncio.to_thread(pair.only, victim, True)
            streams = Streams(pair.proxy, {"beside": body})
            asked = asyncio.create_task(client.post("/v1/chat/completions", json=body))
            await streams.until_begun()
            await asyncio.sleep(0.5)
            await asyncio.to_thread(pair.only, victim, False)
            await asyncio.to_thread(pair.kill, victim)
            await streams.ended()
            return undisturbed, await asked

    undisturbed, answer = asyncio.run(run())
    assert answer.json()["choices"] == undisturbed.json()["choices"]
    assert answer.json()["usage"] == undisturbed.json()["usage"]
    assert (answer.headers["x-continued"], answer.headers["x-continued-by"]) == ("1", "ids")
    pair.replace(victim)


def read_from_cache(pair: AdoptedPair) -> float:
    """Tokens, as both engines count them."""
    total = 0.0
    for one in pair.tritons:
        text = PLAIN.get(f"http://127.0.0.1:{one.triton_metrics_port}/metrics").text
        counts = [line for line in text.splitlines() if line.startswith("vllm:prefix_cache_hits{")]
        total += sum(float(line.rpartition(" ")[2]) for line in counts)
    return total


@pytest.mark.parametrize(("model", "is_read"), [("by_ids", False), ("shared", True)])
def test_a_tenant_reads_the_cached_prefix_of_another_only_where_it_is_shared(pair, model, is_read):
    body = {"model": model, "temperature": 0, "max_tokens": 4}
    body["prompt"] = f"{model}: " + "What one tenant says is not for another. " * 40
    before, texts = read_from_cache(pair), set()
    for tenant in ("one", "other", "other", "one"):
        answer = PLAIN.post(f"{pair.proxy.url}/v1/completions", json=body, headers={TENANT: tenant})
        assert answer.status_code == 200, answer.text
        tokens = answer.json()["usage"]["prompt_tokens"]
        texts.add(answer.json()["choices"][0]["text"])
    assert len(texts) == 1
    time.sleep(1)  # a count comes after its answer
    read = read_from_cache(pair) - before
    assert (read >= tokens // 2) if is_read else (read == 0)


SILENT = f"generated nothing within {PROBE_TIMEOUT_S:g} s"


@pytest.mark.parametrize("what", PROCESSES)
def test_an_engine_that_hangs_is_found_in_time_and_comes_back(pair, bodies, undisturbed, what):
    """A stub that hangs is dead for Triton: only a new start helps."""
    victim, _ = pair.tritons
    process = PROCESSES[what](victim)

    async def run() -> dict[str, Answer]:
        pair.only(victim, True)
        streams = Streams(pair.proxy, bodies)
        await streams.until_begun()
        pair.only(victim, False)
        process.suspend()
        took_s = eventually(lambda: pair.state(victim) == "not_ready", 20, "it is found")
        assert took_s < PROBE_EVERY_S + PROBE_TIMEOUT_S + 2
        return await streams.ended()

    found = asyncio.run(run())
    for name, was in undisturbed.items():
        assert (found[name].error, found[name].texts) == (None, was.texts), name
        assert len(found[name].continued) == len(was.texts), name
    (line,) = log_lines(pair.proxy, "model is not ready")[-1:]
    assert ("is not healthy" if what == "the stub" else SILENT) in line["reason"]
    assert pair.state(victim) == "not_ready"
    if what == "the stub":
        pair.replace(victim)
        return
    process.resume()
    eventually(lambda: pair.state(victim) in UP, 60, "it is back")
    pair.only(victim, True)
    again = answered(pair.proxy, {"a chat": bodies["a chat"]})["a chat"]
    pair.only(victim, False)
    assert (again.error, again.texts) == (None, undisturbed["a chat"].texts)


@pytest.mark.parametrize("what", PROCESSES)
def test_an_idle_engine_that_dies_is_found_by_a_probe_while_triton_says_that_it_is_ready(
    pair, what
):
    victim, _ = pair.tritons
    PROCESSES[what](victim).kill()
    took_s = eventually(lambda: pair.state(victim) == "not_ready", 20, "it is found")
    assert took_s < PROBE_EVERY_S + PROBE_TIMEOUT_S + 1
    ready = f"http://127.0.0.1:{victim.triton_http_port}/v2/health/ready"
    assert PLAIN.get(ready).status_code == 200
    found = answered(pair.proxy, {"a chat": {**CHAT, "max_tokens": 5}})["a chat"]
    assert found.error is None
    pair.replace(victim)


AS_GREEDY = ({"top_p": 1e-6}, {"min_p": 1}, {"top_k": 1}, {"temperature": 0})
OTHERWISE = (
    {"presence_penalty": 2},
    {"frequency_penalty": 2},
    {"repetition_penalty": 1.5},
    {"allowed_token_ids": [300, 400]},
)


def test_sampling_parameters_act(pair):
    fields = {**COMPLETION, "temperature": 2, "max_tokens": 20, "min_tokens": 20}
    asked = {str(one): {**fields, **one} for one in AS_GREEDY}
    asked |= {str(one): {**fields, "temperature": 0, **one} for one in OTHERWISE}
    texts = {name: one.texts[0] for name, one in answered(pair.proxy, asked).items()}
    greedy = {texts[str(one)] for one in AS_GREEDY}
    assert len(greedy) == 1
    assert greedy.isdisjoint(texts[str(one)] for one in OTHERWISE)
    body = {**fields, **OTHERWISE[-1], "return_token_ids": True}
    answer = PLAIN.post(f"{pair.proxy.url}/v1/completions", json=body, headers=HEADERS).json()
    assert set(answer["choices"][0]["token_ids"]) <= {300, 400}


ROUNDS, STREAMS = 5, 8


def cpu_s(triton: Stack) -> float:
    """What tritonserver and vLLM have used."""
    whole = psutil.Process(triton.process.pid)
    used = (one.cpu_times() for one in (whole, *whole.children(recursive=True)))
    return sum(one.user + one.system for one in used)


def test_what_ids_cost_is_measured(pair):
    """Compares `continue: ids`, for which vLLM reports log-probabilities, with `none`: tokens/s,
    and milliseconds of CPU a token, on which other processes have less influence.
    """
    triton = pair.tritons[0]
    pair.only(triton, True)
    rates: dict[str, list[float]] = {"by_ids": [], "never": []}
    costs: dict[str, list[float]] = {"by_ids": [], "never": []}
    for number in range(2 * ROUNDS + 4):
        model = [*rates][number % 2]
        body = {**EXACT["a completion"], "model": model}
        began, used_s, tokens = time.monotonic(), cpu_s(triton), STREAMS * TOKENS
        found = answered(pair.proxy, {str(one): body for one in range(STREAMS)})
        assert not any(one.error for one in found.values())
        rates[model].append(tokens / (time.monotonic() - began))
        costs[model].append(1000 * (cpu_s(triton) - used_s) / tokens)
    pair.only(triton, False)
    for name, found in (("tokens/s", rates), ("ms of CPU a token", costs)):
        medians = {model: statistics.median(each[2:]) for model, each in found.items()}  # warm
        sys.stdout.write(f"{name}: {medians}, of {found}\n")
    assert medians["by_ids"] < 1.5 * medians["never"]


TENANTS, REQUESTS = ("one", "two", "three"), 51


@pytest.mark.parametrize("rows", [{}, {"rows": 1}], ids=["without rows", "one row"])
def test_requests_from_zero_are_held_and_each_tenants_order_is_kept(pair, rows):
    """With one row, they end in the order in which they began."""
    model = "rowed" if rows else "rowless"
    proxy = pair.new_proxy(
        {model: {**READS, **rows}}, HOLD_TIMEOUT_S=600, KEEP_ALIVE_S=2, QUEUE_TIMEOUT_S=600
    )
    proxy.wait_ready(240)
    pair.name()
    for one in pair.tritons:
        pair.kill(one)
    none = "no endpoint of Triton has been found"
    eventually(lambda: none in proxy.log.read_text(), 30, "the model is at zero")
    waiting = f'proxy_fair_queue_waiting{{queue="default/qwen_vllm"}} {REQUESTS}.0'

    async def one(client: httpx.AsyncClient, tenant: str, number: int, held: asyncio.Event) -> str:
        body = {**COMPLETION, "model": model, "max_tokens": 3, "stream": True}
        headers = {TENANT: tenant, "x-request-id": f"{model}.{tenant}.{number}"}
        async with client.stream("POST", "/v1/completions", json=body, headers=headers) as answer:
            assert answer.status_code == 200
            assert answer.headers["x-queue-position"]
            held.set()
            return "".join([line async for line in answer.aiter_lines() if "data: " in line])

    async def of_tenant(client: httpx.AsyncClient, tenant: str) -> list[asyncio.Task[str]]:
        tasks = []
        for number in range(REQUESTS // len(TENANTS)):
            held = asyncio.Event()
            tasks.append(asyncio.create_task(one(client, tenant, number, held)))
            await asyncio.wait_for(held.wait(), HANG_S)
        return tasks

    async def run() -> list[str]:
        async with httpx.AsyncClient(
            base_url=proxy.url, timeout=HANG_S * 2, limits=httpx.Limits()
        ) as client:
            sent = await asyncio.gather(*(of_tenant(client, tenant) for tenant in TENANTS))
            metrics = await client.get("/metrics", headers=HEADERS)
            assert waiting in metrics.text
            pair.tritons = [pair.new(), pair.new()]
            # with one row each, two endpoints would end their requests in any order
            pair.name(pair.tritons[0])
            return await asyncio.gather(*(one for tasks in sent for one in tasks))

    texts = asyncio.run(run())
    assert len(texts) == REQUESTS
    assert all(text.endswith("data: [DONE]") and '"error"' not in text for text in texts)
    ends = [str(line["request_id"]) for line in log_lines(proxy, "request")]
    for tenant in TENANTS:
        numbers = [int(one.rpartition(".")[2]) for one in ends if f".{tenant}." in one]
        assert sorted(numbers) == list(range(REQUESTS // len(TENANTS)))
        if rows:
            assert numbers == sorted(numbers)
    pair.name(*pair.tritons)
    pair.wait()
