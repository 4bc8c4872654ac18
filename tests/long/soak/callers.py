"""Callers of all kinds, each again and again; every answer is looked at."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
from websockets.asyncio.client import connect

from tests.fixtures.stack import HANG_S

CHAT, PLAIN, SOCKET = "/v1/chat/completions", "/chat/stream", "/v1/chat/completions/ws"
HI = [{"role": "user", "content": "Hello! Who are you?"}]
SCHEMA = {
    "type": "object",
    "properties": {"mood": {"enum": ["glad", "sad"]}, "age": {"type": "integer", "maximum": 99}},
    "required": ["mood", "age"],
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA}}
TOOL = {"type": "function", "function": {"name": "look", "parameters": SCHEMA}}
MOST_SHOWN = 5  # failures

Caller = Callable[[httpx.AsyncClient, random.Random], Awaitable[None]]


def asked(chance: random.Random, **fields: Any) -> dict[str, Any]:
    """A chat of either engine, with some tokens or many."""
    model = chance.choice(["demo", "steady"])
    return {"model": model, "messages": HI, "max_tokens": chance.randint(1, 60), **fields}


async def posted(client: httpx.AsyncClient, path: str, body: dict[str, Any]) -> dict[str, Any]:
    answer = await client.post(path, json=body)
    assert answer.status_code == 200, answer.text[:300]
    return answer.json()


async def whole(client: httpx.AsyncClient, chance: random.Random) -> None:
    body = asked(chance, n=chance.randint(1, 3), seed=chance.randint(0, 99))
    found = await posted(client, CHAT, body)
    assert len(found["choices"]) == body["n"]
    assert found["usage"]["completion_tokens"] <= body["n"] * body["max_tokens"]


async def streamed(client: httpx.AsyncClient, chance: random.Random) -> None:
    body = asked(chance, logprobs=chance.random() < 0.5)
    body |= {"stream": True, "stream_options": {"include_usage": True}}
    async with client.stream("POST", CHAT, json=body) as answer:
        lines = [line async for line in answer.aiter_lines() if line.startswith("data: ")]
    assert lines[-1] == "data: [DONE]", lines[-1]
    usage = json.loads(lines[-2].removeprefix("data: "))["usage"]
    assert 0 < usage["completion_tokens"] <= body["max_tokens"]


async def leaving(client: httpx.AsyncClient, chance: random.Random) -> None:
    """In the middle of a stream that would be much longer."""
    body = asked(chance, model="steady", n=chance.randint(1, 2), max_tokens=3_000, stream=True)
    left = chance.randint(1, 20)
    async with client.stream("POST", CHAT, json=body) as answer:
        async for line in answer.aiter_lines():
            assert "error" not in line, line
            left -= line.startswith("data: ")
            if not left:
                break


async def impatient(client: httpx.AsyncClient, chance: random.Random) -> None:
    """Hangs up before the whole answer is there."""
    body = asked(chance, model="steady", max_tokens=3_000)
    try:
        await client.post(CHAT, json=body, timeout=chance.uniform(0.05, 0.5))
    except httpx.TimeoutException:
        return
    raise AssertionError("3,000 tokens in half a second")


async def stopped(client: httpx.AsyncClient, chance: random.Random) -> None:
    body = asked(chance, model="steady", max_tokens=200, stop=["small shop", "never written"])
    (choice,) = (await posted(client, CHAT, body))["choices"]
    assert choice["finish_reason"] == "stop"
    assert "small" not in choice["message"]["content"]


async def guided(client: httpx.AsyncClient, chance: random.Random) -> None:
    seed = chance.randint(0, 10**6)
    body = asked(chance, model="demo", max_tokens=80, seed=seed, temperature=1.0)
    (choice,) = (await posted(client, CHAT, {**body, "response_format": FORMAT}))["choices"]
    if choice["finish_reason"] == "stop":
        assert json.loads(choice["message"]["content"]).keys() == {"mood", "age"}


async def calling(client: httpx.AsyncClient, chance: random.Random) -> None:
    body = asked(chance, model="demo", max_tokens=120, seed=chance.randint(0, 99), tools=[TOOL])
    found = await posted(client, CHAT, {**body, "tool_choice": "required"})
    (choice,) = found["choices"]
    assert choice["finish_reason"] in ("tool_calls", "length")


async def plain(client: httpx.AsyncClient, chance: random.Random) -> None:
    body = {"model": "demo", "messages": HI, "temperature": chance.random()}
    async with client.stream("POST", PLAIN, json=body) as answer:
        lines = [json.loads(line) async for line in answer.aiter_lines()]
    assert [line["done"] for line in lines] == [*[False] * (len(lines) - 1), True]


async def refused(client: httpx.AsyncClient, chance: random.Random) -> None:
    wrong = chance.choice([{"model": "nobody"}, {"temperature": 9}, {"max_tokens": 10**6}])
    answer = await client.post(CHAT, json=asked(chance, **wrong))
    assert answer.status_code in (400, 404), answer.text[:300]
    assert answer.json()["error"]["code"]


async def counted(client: httpx.AsyncClient, chance: random.Random) -> None:
    found = await posted(client, "/tokenize", {"model": "demo", "messages": HI})
    shown = await posted(client, f"{CHAT}/render", asked(chance, model="demo"))
    assert found["tokens"] == shown["prompt_token_ids"]


async def on_a_socket(client: httpx.AsyncClient, chance: random.Random) -> None:
    """One request to its end, and one that is cancelled on the way."""
    url = f"ws://{client.base_url.host}:{client.base_url.port}{SOCKET}"
    async with connect(url, proxy=None) as socket:
        await socket.send(json.dumps(asked(chance)))
        assert (await ended(socket))["type"] == "done"
        await socket.send(json.dumps(asked(chance, model="steady", max_tokens=3_000)))
        await asyncio.wait_for(socket.recv(), HANG_S)
        await socket.send('{"type": "cancel"}')
        assert (await ended(socket))["type"] == "done"


async def ended(socket: Any) -> dict[str, Any]:
    """The message that ends a request."""
    while True:
        message = json.loads(await asyncio.wait_for(socket.recv(), HANG_S))
        if message.get("type") in ("done", "error"):
            return message


KINDS: tuple[Caller, ...] = (
    *(whole, streamed, streamed, leaving, leaving, impatient, stopped),
    *(guided, calling, plain, refused, counted, on_a_socket),
)


class Callers:
    """`counts`: answers that were right, by kind; `failures`: the first of those that were not."""

    def __init__(self, url: str, *, at_once: int, seed: int) -> None:
        self.counts: Counter[str] = Counter()
        self.failures: list[str] = []
        self._url = url
        self._at_once = at_once
        self._seed = seed

    async def run_each(self) -> None:
        """Every kind once, one after the other."""
        async with self._client() as client:
            for kind in dict.fromkeys(KINDS):
                await self._call(kind, client, random.Random(self._seed))

    async def run(self, is_over: Callable[[], bool]) -> None:
        """So many at once, until it is over; those that have begun end."""

        async def one(number: int) -> None:
            chance = random.Random(self._seed + number)
            async with self._client() as client:
                while not is_over() and len(self.failures) < MOST_SHOWN:
                    await self._call(chance.choice(KINDS), client, chance)

        await asyncio.gather(*(one(number) for number in range(self._at_once)))

    async def _call(self, kind: Caller, client: httpx.AsyncClient, chance: random.Random) -> None:
        try:
            await kind(client, chance)
        except Exception as error:
            self.failures.append(f"{kind.__name__}: {type(error).__name__}: {error}")
        else:
            self.counts[kind.__name__] += 1

    def _client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=self._url, timeout=HANG_S, verify=False)
