"""What the long prompts of agents cost: a first turn, a second one, and the streams beside them.

    python -m tests.bench.long_prompts [ROUNDS]

The real stack over the scripted engine. Each conversation has a system prompt, 40 tools, and calls
with their results; no two share anything, and the second turn adds an answer and a question.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil

from tests.bench.scripted_stack import SCRIPTED, BenchStack, Processes, running

WORDS = "The gate of the harbour opens at nine, and nobody knows whether the ship will come. "
CHARACTERS_A_TOKEN = 2.55  # of these texts in the demo model's vocabulary
PROMPTS = ((10_000, 200), (50_000, 200), (100_000, 200), (100_000, 1_000))  # tokens, messages
TRUNCATED = ((120_000, 400), (200_000, 400))
Json = dict[str, Any]
Figures = dict[str, float]


def tool(number: int) -> Json:
    names = ("path", "pattern", "limit", "offset", "mode", "reason")
    properties = {name: {"type": "string", "description": f"The {name}."} for name in names}
    schema = {"type": "object", "properties": properties, "required": ["path"]}
    function = {"name": f"tool_{number}", "description": WORDS, "parameters": schema}
    return {"type": "function", "function": function}


def chat(number: int, tokens: int, messages: int) -> Json:
    """A conversation of which each message differs from those of any other number."""
    tools = [tool(at) for at in range(40)]
    left = CHARACTERS_A_TOKEN * tokens - len(json.dumps(tools))
    text = (WORDS * 2_000)[: max(1, int(left / messages) - 30)]
    turns: list[Json] = [{"role": "system", "content": f"{number} {text}"}]
    for at in range(1, messages, 4):
        name = f"{number}.{at}"
        arguments = json.dumps({"path": f"/{name}", "reason": text[: len(text) // 2]})
        function = {"name": f"tool_{at % 40}", "arguments": arguments}
        call = {"id": f"call_{at}", "type": "function", "function": function}
        half = text[: len(text) // 2]
        turns += (
            {"role": "user", "content": f"{name} {text}"},
            {"role": "assistant", "content": f"{name} {half}", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"call_{at}", "content": f"{name} {text}"},
            {"role": "assistant", "content": f"{name} {text}"},
        )
    turns.append({"role": "user", "content": "Go on."})
    shared = {"model": "paced", "max_tokens": 2, "stream": True}
    return {**shared, "tools": tools, "messages": turns}


def second(first: Json) -> Json:
    said = ({"role": "assistant", "content": "I did."}, {"role": "user", "content": "And now?"})
    return {**first, "messages": [*first["messages"], *said]}


def truncated(number: int, tokens: int, messages: int) -> Json:
    """For /v1/responses, which drops the oldest turns."""
    text = (WORDS * 2_000)[: int(CHARACTERS_A_TOKEN * tokens / messages)]
    items = [
        {"role": ("user", "assistant")[at % 2], "content": f"{number}.{at} {text}"}
        for at in range(messages)
    ]
    options = {"truncation": "auto", "stream": True, "store": False, "max_output_tokens": 16}
    return {"model": "paced", "input": [*items, {"role": "user", "content": "So?"}], **options}


class Load:
    def __init__(self, bench: BenchStack) -> None:
        self._port = bench.stack.port
        self._parts = Processes(bench.stack, "paced").parts
        self._parts["sandbox"] = [
            one
            for one in psutil.Process(bench.stack.process.pid).children()
            if "anyio" in " ".join(one.cmdline())
        ]
        self._numbers = iter(range(1_000_000))

    def number(self) -> int:
        return next(self._numbers)

    def cpu_ms(self) -> Figures:
        """Of each part so far. psutil counts in steps of 10 ms."""
        return {
            part: sum(
                int(file.read_text().split()[0]) / 1e6
                for process in processes
                for file in Path(f"/proc/{process.pid}/task").glob("*/schedstat")
            )
            for part, processes in self._parts.items()
        }

    def cost(self, bodies: list[Json], path: str = "/v1/chat/completions") -> Figures:
        """Of requests one after the other, each: CPU by part, and the time to the first event."""
        contents, before = [json.dumps(body).encode() for body in bodies], self.cpu_ms()
        first = statistics.median(asyncio.run(self._timed(one, path)) for one in contents)
        time.sleep(0.1)
        after = self.cpu_ms()
        spent = {part: (after[part] - before[part]) / len(bodies) for part in before}
        return {"first event": first, "CPU": sum(spent.values()), **spent}

    async def _timed(self, content: bytes, path: str) -> float:
        """Milliseconds to the first event with text."""
        reader, writer, began = await self._sent(content, path)
        found = 0.0
        while line := await reader.readline():
            if not found and (b'"content":"' in line or b"output_text.delta" in line):
                found = (time.perf_counter() - began) * 1000
        assert found, f"no answer: {content[:200]!r}"
        writer.close()
        return found

    async def _sent(
        self, content: bytes, path: str
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, float]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        head = f"POST {path} HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
        began = time.perf_counter()
        writer.write(head.encode() + content)
        return reader, writer, began

    def gap(self, bodies: list[Json]) -> float:
        """The longest gap of a stream, in milliseconds, while all these are answered, or for two
        seconds.
        """
        return asyncio.run(self._gap([json.dumps(body).encode() for body in bodies]))

    async def _gap(self, contents: list[bytes]) -> float:
        path, arrived = "/v1/chat/completions", list[float]()
        body = {"model": "paced", "messages": [{"role": "user", "content": "Hi"}]}
        stream = json.dumps({**body, "max_tokens": 100_000, "stream": True}).encode()
        reader, writer, _ = await self._sent(stream, path)

        async def watch() -> None:
            while await reader.readuntil(b"\n\n"):
                arrived.append(time.perf_counter())

        watching = asyncio.create_task(watch())
        await asyncio.sleep(0.5)
        began = time.perf_counter()
        await asyncio.gather(*(self._timed(one, path) for one in contents))
        if not contents:
            await asyncio.sleep(2)
        await asyncio.sleep(0.1)
        watching.cancel()
        writer.close()
        seen = [moment for moment in arrived if moment >= began]
        return max(b - a for a, b in pairwise(seen)) * 1000


def say(name: str, runs: list[Figures]) -> Figures:
    """Prints and returns the medians."""
    found = {key: statistics.median(one[key] for one in runs) for key in runs[0]}
    cells = "  ".join(f"{key} {value:.0f}" for key, value in found.items())
    sys.stdout.write(f"{name:40} ms: {cells}\n")
    sys.stdout.flush()
    return found


def turns(load: Load, tokens: int, messages: int, rounds: int) -> None:
    """Of four conversations one after the other; the first round warms up."""
    runs: list[tuple[Figures, Figures]] = []
    for _ in range(rounds + 1):
        bodies = [chat(load.number(), tokens, messages) for _ in range(4)]
        runs.append((load.cost(bodies), load.cost([*map(second, bodies)])))
    names = (f"{tokens:,} tokens, {messages:,} messages, {turn}" for turn in ("first", "second"))
    first, then = map(say, names, map(list, zip(*runs[1:], strict=True)))
    sys.stdout.write(f"{'':40} CPU of the second: {then['CPU'] / first['CPU']:.2f}\n")


def gaps(load: Load, tokens: int, messages: int, count: int, rounds: int) -> None:
    runs: list[Figures] = []
    for _ in range(rounds):
        bodies = [chat(load.number(), tokens, messages) for _ in range(count)]
        both = {"idle": load.gap([]), "first": load.gap(bodies)}
        runs.append(both | {"second": load.gap([*map(second, bodies)])})
    say(f"gap beside {count} of {tokens:,}, {messages:,}", runs)


def main(rounds: int = 5) -> None:
    with running({"paced": SCRIPTED["paced"]}) as bench:
        load = Load(bench)
        for tokens, messages in PROMPTS:
            turns(load, tokens, messages, rounds)
        for tokens, messages in PROMPTS:
            for count in (1, 8):
                gaps(load, tokens, messages, count, rounds)
        for tokens, messages in TRUNCATED:
            bodies = [[truncated(load.number(), tokens, messages)] for _ in range(rounds)]
            costs = [load.cost(body, "/v1/responses") for body in bodies]
            say(f"truncated, of {tokens:,} tokens", costs)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
