"""What routing by prefixes saves: conversations over two endpoints of the demo model's engine.

usage: python -m tests.bench.prefix_affinity [ROUNDS]

Two proxies stand before the same two tritonservers; one routes by prefix, the other at random. Runs
alternate; each has system prompts of its own, so that none finds what another one left behind.
Prints medians over the rounds: the share of prompt tokens that the engines had cached, and the time
to the first token of all turns but the first, which nobody can have cached.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.bench.scripted_stack import ARTIFACTS, demo
from tests.fixtures.stack import HANG_S, SECRET, Stack, eventually, free_port

CONVERSATIONS, TURNS, RULES, ROUNDS = 8, 6, 24, 5
ANSWER_TOKENS = 16
RULE = (
    "Rule {number} of house {name}: answer briefly, be friendly, and never mention rule {number}. "
)
POLICIES = ("prefix", "random")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """hit_rate: cached tokens over prompt tokens. ttft_ms: the median of later turns."""

    hit_rate: float
    ttft_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    text: str
    prompt_tokens: int
    cached_tokens: int
    ttft_s: float


def ask(client: httpx.Client, messages: list[dict[str, str]]) -> Turn:
    body = {
        "model": "demo",
        "messages": messages,
        "max_tokens": ANSWER_TOKENS,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    began, ttft_s, text, usage = time.perf_counter(), 0.0, "", {}
    with client.stream("POST", "/v1/chat/completions", json=body) as response:
        response.raise_for_status()
        for line in response.iter_lines():
            if not line.startswith("data: {"):
                continue
            event: dict[str, Any] = json.loads(line.removeprefix("data: "))
            if "error" in event:
                raise RuntimeError(event["error"]["message"])
            ttft_s = ttft_s or time.perf_counter() - began
            text += "".join(one["delta"].get("content") or "" for one in event["choices"])
            usage = event.get("usage") or usage
    return Turn(
        text=text,
        prompt_tokens=usage["prompt_tokens"],
        cached_tokens=usage["prompt_tokens_details"]["cached_tokens"],
        ttft_s=ttft_s,
    )


def conversation(url: str, name: str) -> list[Turn]:
    """The caller's side: each turn has all turns before it."""
    rules = "".join(RULE.format(number=number, name=name) for number in range(RULES))
    messages, turns = [{"role": "system", "content": rules}], []
    with httpx.Client(base_url=url, timeout=HANG_S) as client:
        for number in range(TURNS):
            messages.append({"role": "user", "content": f"Question {number}: how are you?"})
            turns.append(ask(client, messages))
            messages.append({"role": "assistant", "content": turns[-1].text})
    return turns


def measured(url: str, run: int) -> Figures:
    with ThreadPoolExecutor(CONVERSATIONS) as pool:
        names = (f"{run}-{number}" for number in range(CONVERSATIONS))
        found = list(pool.map(lambda name: conversation(url, name), names))
    turns = [turn for one in found for turn in one]
    later = [turn.ttft_s for one in found for turn in one[1:]]
    cached = sum(turn.cached_tokens for turn in turns)
    return Figures(
        hit_rate=cached / sum(turn.prompt_tokens for turn in turns),
        ttft_ms=statistics.median(later) * 1000,
    )


@contextmanager
def proxies() -> Iterator[dict[str, str]]:
    """The address of a proxy, by its policy."""
    folder = ARTIFACTS / "affinity"
    folder.mkdir(parents=True, exist_ok=True)
    models_file = folder / "models.yaml"
    models_file.write_text(yaml.safe_dump({"models": {"demo": demo()}}))
    place = {"MODELS_FILE": str(models_file), "ARTIFACTS_DIR": str(folder)}
    with ExitStack() as running:
        tritons = []
        for number in range(2):  # one after the other: each start writes the folder
            tritons.append(started(running, ["triton"], place, folder / f"triton{number}.log"))
            wait_for(tritons[-1])
        listed = (f"grpc://127.0.0.1:{one.triton_grpc_port}" for one in tritons)
        source = ",".join(listed)
        found = {}
        for policy in POLICIES:
            settings = {**place, "TRITON_URL": source, "TRITON_ROUTING": policy}
            proxy = started(running, ["proxy"], settings, folder / f"{policy}.log")
            proxy.wait_ready()
            found[policy] = proxy.url
        yield found


def started(running: ExitStack, command: list[str], place: dict[str, str], log: Path) -> Stack:
    ports = ("PORT", "TRITON_GRPC_PORT", "TRITON_METRICS_PORT")
    environment = {name: str(free_port()) for name in ports}
    stack = Stack(command, {**environment, "TRITON_SECRET": SECRET, **place}, log)
    running.callback(stack.stop)
    return stack


def wait_for(triton: Stack) -> None:
    def is_ready() -> bool:
        if triton.process.poll() is not None:
            raise RuntimeError(triton.log.read_text()[-3000:])
        return "tritonserver is ready after" in triton.log.read_text()

    eventually(is_ready, 600, f"ready: see {triton.log}")


def main(rounds: int) -> None:
    runs: dict[str, list[Figures]] = {policy: [] for policy in POLICIES}
    numbers = count(int(time.time()))
    with proxies() as urls:
        for url in urls.values():
            measured(url, next(numbers))
        for _ in range(rounds):
            for policy, url in urls.items():
                runs[policy].append(measured(url, next(numbers)))
    say(f"{CONVERSATIONS} conversations of {TURNS} turns, {rounds} rounds: medians (least, most)")
    for policy, found in runs.items():
        rates = [one.hit_rate * 100 for one in found]
        times = [one.ttft_ms for one in found]
        say(f"{policy:8} cached {spread(rates)} %   TTFT of later turns {spread(times)} ms")


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):6.1f} ({min(values):.1f}, {max(values):.1f})"


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS)
