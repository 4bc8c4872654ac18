"""64 streams over three tritonservers of the ONNX engine, while one after the other is killed: each
is complete, and says byte for byte what it says without a loss.

Five kills, and more until two dozen streams were continued. With LOSSLESS_SECONDS=300 one every ten
seconds for so long, if the machine starts tritonservers as fast: one is killed only while another
is ready.

The engine continues an answer bit for bit if it has at most `exact_resume_tokens` (512) tokens, and
no part of its prompt came from the prefix cache: so answers are shorter, and no two requests share
a `cache_salt`.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any
from uuid import uuid4

import pytest
import yaml

from tests.fixtures.pool_load import KEY, Callers, until
from tests.fixtures.random_model import medium
from tests.fixtures.running import ARTIFACTS, FP32, ROWS, Start, alone, build
from tests.fixtures.stack import ROOT, SECRET, Stack, eventually
from tests.server.test_tools import TOOLS

SECONDS = float(os.environ.get("LOSSLESS_SECONDS", "0"))
STREAMS, TRITONS, KILLS, KILL_EVERY_S = 64, 3, 5, 10.0
LEAST_STREAMS = 8  # that a tritonserver has when it is killed
MOST_TOKENS = 400  # of an answer
LEAST_CONTINUED, MOST_KILLS = 24, 20
OWN = ARTIFACTS / "lossless"
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 30, "maxLength": 60},
        "numbers": {"type": "array", "items": {"type": "integer"}, "minItems": 12, "maxItems": 20},
    },
    "required": ["name", "numbers"],
    "additionalProperties": False,
}
Request = tuple[str, dict[str, Any]]


def said(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def requests() -> list[Request]:
    """Of each kind some with a seed of their own, and streams that are long enough to be lost."""
    found: list[Request] = []
    for seed in range(4):
        long = {
            **{"model": "slow", "seed": seed, "max_tokens": MOST_TOKENS},
            "return_token_ids": True,  # they show whether a difference is the engine's
        }
        chat = {"model": "demo", "seed": seed, "temperature": 1.0, "max_tokens": MOST_TOKENS}
        form = {
            "type": "json_schema",
            "json_schema": {"name": "s", "strict": True, "schema": SCHEMA},
        }
        found += [
            (TEXT, {**long, "prompt": f"Once {seed}", "temperature": 0.9, "top_p": 0.95}),
            (TEXT, {**long, "prompt": "abc", "logprobs": 2, "echo": True, "max_tokens": 60}),
            (TEXT, {**long, "prompt": "x", "presence_penalty": 0.6, "frequency_penalty": 0.3}),
            (TEXT, {**long, "prompt": f"{seed}" * 9, "temperature": 0, "n": 2, "max_tokens": 150}),
            (CHAT, {**chat, "messages": said("Tell me a long story about the sea.")}),
            (CHAT, {**chat, "messages": said("What is the weather in Rome?"), "tools": TOOLS}),
            (
                CHAT,
                {
                    **chat,
                    "messages": said("Call something."),
                    "tools": TOOLS,
                    "tool_choice": "required",
                },
            ),
            (CHAT, {**chat, "messages": said("Make one up."), "response_format": form}),
        ]
    usage = {"stream": True, "stream_options": {"include_usage": True}}
    return [(path, {**body, **usage}) for path, body in found]


def folded(answer: str) -> dict[str, Any]:
    """All that a stream says, however its tokens were joined into events: by choice and field, and
    its usage. Ids of calls are random, and what was cached is the engine's matter.
    """
    parts: defaultdict[str, Any] = defaultdict(str)
    *lines, done = [line for line in answer.splitlines() if line.startswith("data: ")]
    assert done == "data: [DONE]"
    for event in (json.loads(line.removeprefix("data: ")) for line in lines):
        assert "error" not in event, event
        if event.get("usage"):
            event["usage"]["prompt_tokens_details"] = None
            parts["usage"] = event["usage"]
        for choice in event["choices"]:
            add(parts, str(choice.pop("index")), choice)
    return dict(parts)


def add(parts: defaultdict[str, Any], path: str, value: Any) -> None:
    """Texts and lists grow by the values of each event."""
    if isinstance(value, dict):
        for name, one in value.items():
            add(parts, f"{path}.{name}", one)
    elif path.endswith("tool_calls"):
        for call in value or ():
            add(parts, f"{path}.{call.pop('index')}", {**call, "id": None})
    elif isinstance(value, list):
        parts[path] = [*(parts[path] or []), *value]
    elif value is not None:
        parts[path] += str(value)


def difference(answer: dict[str, Any], expected: dict[str, Any]) -> str:
    """Where each part begins to differ, with what is around it."""
    found = []
    for path in answer.keys() | expected.keys():
        one, other = answer.get(path), expected.get(path)
        if one != other:
            both = repr(one), repr(other)
            pairs = enumerate(zip(*both, strict=False))
            at = next((number for number, (a, b) in pairs if a != b), 0)
            found += [f"{path} at {at}", *(text[max(0, at - 60) : at + 60] for text in both)]
    return "\n".join(found)


@dataclass
class Cluster:
    """tritons: by address."""

    tritons: dict[str, Stack]
    proxy: Stack


@pytest.fixture(scope="module")
def own_models() -> Path:
    """`slow` takes seconds for an answer, so that most of its streams are cut by a kill."""
    demo = yaml.safe_load((ROOT / "models.yaml").read_text())["models"]["demo"]
    with alone():
        slow = medium(ARTIFACTS / "weights" / "medium")
        models = {
            "demo": {**demo, "weights": str(ROOT / demo["weights"])},
            "slow": {"weights": str(slow), "onnx": {**FP32, "max_rows": ROWS}},
        }
        OWN.mkdir(exist_ok=True)
        path = OWN / "models.yaml"
        path.write_text(yaml.safe_dump({"models": models}))
        build(path, OWN)
    return path


@pytest.fixture(scope="module")
def cluster(start: Start, own_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    tritons = tuple(_tritons(start, own_models, tmp_path_factory.mktemp("tritons")))
    for one in tritons:
        eventually(
            partial(lambda one: "tritonserver is ready after" in one.log.read_text(), one),
            110,
            f"ready: see {one.log}",
        )
    addresses = ",".join(
        f"grpc://127.0.0.1:{one.triton_grpc_port}?metrics={one.triton_metrics_port}"
        for one in tritons
    )
    patient = {"QUEUE_LENGTH": 1000, "QUEUE_TIMEOUT_S": 900}  # a time may come with one Triton
    named = {"TRITON_URL": addresses, "TRITON_SECRET": SECRET, "MODELS_FILE": None}
    proxy = start("proxy", API_KEY=KEY, **named, **patient)
    proxy.wait_ready()
    return Cluster({f"127.0.0.1:{one.triton_grpc_port}": one for one in tritons}, proxy)


def _tritons(start: Start, models_file: Path, folder: Path) -> Iterator[Stack]:
    """Each has a folder of its own, as each start writes it; nothing is built again."""
    for number in range(TRITONS):
        own = folder / str(number)
        shutil.copytree(OWN, own)
        yield start("triton", ARTIFACTS_DIR=own, MODELS_FILE=models_file)


@dataclass
class Run:
    """answers: how many were compared. different: how those differed that were not as expected.
    killed: how many streams each tritonserver had.
    """

    callers: Callers
    expected: dict[int, dict[str, Any]] = field(default_factory=dict)
    answers: int = 0
    different: list[str] = field(default_factory=list)
    killed: list[int] = field(default_factory=list)
    is_over: bool = False

    async def answer(self, number: int) -> dict[str, Any]:
        path, body = REQUESTS[number]
        salted = {**body, "cache_salt": uuid4().hex}
        answer = await self.callers.client.post(path, json=salted)
        assert answer.status_code == 200, answer.text
        return folded(answer.text)

    async def undisturbed(self) -> None:
        answers = await asyncio.gather(*map(self.answer, range(len(REQUESTS))))
        self.expected = dict(enumerate(answers))

    async def call(self, rng: Random) -> None:
        while not self.is_over:
            number = rng.randrange(len(REQUESTS))
            answer = await self.answer(number)
            if answer != self.expected[number]:
                self.different.append(difference(answer, self.expected[number]))
            self.answers += 1

    async def kill(self, cluster: Cluster) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + SECONDS
        while loop.time() < end if SECONDS else await self._are_too_few():
            await until(partial(self._kill_one, cluster), "two tritonservers are ready", 120)
            await asyncio.sleep(KILL_EVERY_S)
        self.is_over = True

    async def _are_too_few(self) -> bool:
        kills, continued = len(self.killed), await self.callers.continued()
        return kills < KILLS or (continued < LEAST_CONTINUED and kills < MOST_KILLS)

    async def _kill_one(self, cluster: Cluster) -> bool:
        """The one with the most streams, if another is ready. One that was just started has none,
        and an ejected one gets none until its time is over: to wait for all would take minutes.
        """
        found = await self.callers.endpoints()
        ready = {name: one["streams"] for name, one in found.items() if one["state"] == "ready"}
        victim = max(ready, key=lambda name: ready[name], default=None)
        if victim is None or len(ready) < 2 or ready[victim] < LEAST_STREAMS:
            return False
        cluster.tritons[victim].tritonserver().kill()
        self.killed.append(ready[victim])
        return True


REQUESTS = requests()


@pytest.mark.xdist_group("hostile")
def test_streams_are_byte_identical_while_tritonservers_are_killed(cluster):
    async def run() -> None:
        one = Run(Callers(cluster.proxy, "demo"))
        async with one.callers.client:
            for address in cluster.tritons:
                await one.callers.until_state(address, "ready")
            await one.undisturbed()
            await asyncio.gather(
                one.kill(cluster), *(one.call(Random(number)) for number in range(STREAMS))
            )

            async def is_idle() -> bool:
                return not any((await one.callers.streams()).values())

            await until(is_idle, "no stream is left")
            continued = await one.callers.continued()
            kills = len(one.killed)
            figures = (
                f"{kills} kills (streams: {one.killed}), {one.answers} answers, "
                f"{continued} continuations"
            )
            sys.stdout.write("\n".join((figures, *one.different, "")))
            assert not one.different, figures
            assert kills >= KILLS, figures
            assert continued >= LEAST_CONTINUED, figures

    asyncio.run(run())
