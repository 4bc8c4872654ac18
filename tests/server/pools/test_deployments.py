"""Two pools behind one public name, changed under load; and models that come and go."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import yaml

from tests.fixtures.pool_load import KEY, Callers, text_of, until
from tests.fixtures.running import build
from tests.fixtures.stack import ROOT, Stack
from tests.server.pools.conftest import address, listed

pytestmark = pytest.mark.xdist_group("pools")  # one worker has the three tritonservers
FOREVER = 100_000  # tokens
POOL = 3  # the group of the metrics' pattern


@dataclass(frozen=True, slots=True)
class BlueGreen:
    """A models.yaml whose public model `chat` is `steady` in the pools `blue` and `green`."""

    file: Path
    pools: dict[str, str]

    def write(self, **of_chat: object) -> None:
        models = {
            "chat": {
                "deployments": [
                    {"name": "blue", "pool": "blue", "model": "steady"},
                    {"name": "green", "pool": "green", "model": "steady", "weight": 0},
                ],
                **of_chat,
            }
        }
        pools = {name: {"endpoints": source} for name, source in self.pools.items()}
        self.replace(yaml.safe_dump({"pools": pools, "models": models}))

    def replace(self, text: str) -> None:
        fresh = self.file.with_suffix(".new")
        fresh.write_text(text)
        fresh.replace(self.file)


@pytest.fixture(scope="module")
def blue_green(tritons, tmp_path_factory) -> BlueGreen:
    pools = {
        name: f"grpc://{listed(one)}"
        for name, one in zip(("blue", "green"), tritons[:2], strict=True)
    }
    made = BlueGreen(tmp_path_factory.mktemp("deployments") / "models.yaml", pools)
    made.write()
    return made


@pytest.fixture(scope="module")
def proxy(blue_green, proxy_of) -> Stack:
    return proxy_of(MODELS_FILE=blue_green.file, TRITON_URL=blue_green.pools["blue"])


def command(proxy: Stack, *arguments: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "proxy.cli", *arguments, "--url", proxy.url],
        cwd=ROOT,
        env={**os.environ, "ADMIN_KEY": KEY},
        check=True,
        stdout=subprocess.DEVNULL,
    )


def with_callers(proxy: Stack, model: str, body: Callable) -> None:
    async def run() -> None:
        callers = Callers(proxy, model)
        async with callers.client:
            await body(callers)

    asyncio.run(run())


async def serves_only(callers: Callers, answers: list[httpx.Response], pool: str) -> None:
    """Waits until 48 answers in a row came from one pool."""

    async def does() -> bool:
        before, count = await callers.ended(by=POOL), len(answers)
        await until(lambda: has_answered(answers, count + 48), "more answers")
        return set(await callers.ended(by=POOL) - before) == {pool}

    await until(does, f"only {pool} serves")


async def has_answered(answers: list, count: int) -> bool:
    return len(answers) >= count


def assert_whole(answers: list[httpx.Response], tokens: int) -> None:
    assert {one.status_code for one in answers} == {200}
    assert {one.json()["usage"]["completion_tokens"] for one in answers} == {tokens}


def test_blue_green_by_command_under_load_costs_nobody_an_answer(proxy):
    async def body(callers: Callers) -> None:
        async with callers.busy(16, tokens=3) as answers:
            await serves_only(callers, answers, "blue")
            switch = ("deployments", "switch", "chat", "green")
            await asyncio.to_thread(command, proxy, *switch)
            await serves_only(callers, answers, "green")
            await asyncio.to_thread(command, proxy, "deployments", "rollback", "chat")
            await serves_only(callers, answers, "blue")
        assert_whole(answers, 3)

    with_callers(proxy, "chat", body)


def test_models_yaml_is_reloaded_under_load_and_running_streams_keep_what_they_began_with(
    proxy, blue_green
):
    async def body(callers: Callers) -> None:
        undisturbed = text_of([(await callers.whole(60)).json()])
        kept = asyncio.create_task(callers.stream(60))

        async def has_begun() -> bool:
            return callers.began == 1

        await until(has_begun, "the stream has begun")
        async with callers.busy(16, tokens=3) as answers:
            blue_green.write(aliases=["gpt-next"], limits={"max_tokens": 30})

            async def is_reloaded() -> bool:
                return (await callers.whole(2, model="gpt-next")).status_code == 200

            await until(is_reloaded, "the alias is known")
            assert (await callers.whole(60)).status_code == 400
            blue_green.replace("models: [")
            count = len(answers)
            await until(lambda: has_answered(answers, count + 48), "an invalid file is no error")
            assert await is_reloaded()
            blue_green.write()
        assert_whole(answers, 3)
        events = await kept
        assert not any("error" in event for event in events)
        assert text_of(events) == undisturbed

    with_callers(proxy, "chat", body)


def test_a_model_that_is_loaded_is_served_and_one_that_is_unloaded_ends_its_streams_first(
    start, place, proxy_of
):
    settings = place("steady", "other")
    build(settings["MODELS_FILE"], settings["ARTIFACTS_DIR"])
    server = start("steady", module="tests.fixtures.explicit_triton", **settings)
    proxy = proxy_of(TRITON_URL=f"grpc://{listed(server)}")

    async def body(callers: Callers) -> None:
        kept = asyncio.create_task(callers.stream(30))
        assert (await callers.whole(3, model="other")).status_code == 404
        unknown = await callers.client.post("/admin/v1/models/none/load", json={})
        assert (unknown.status_code, unknown.json()["error"]["code"]) == (409, "endpoints_refused")
        assert "its model repository has no such model" in unknown.json()["error"]["message"]
        loaded = await callers.operate("models/other/load")
        assert loaded["data"] == [{"pool": "default", "address": address(server), "error": None}]

        async def is_served() -> bool:
            return (await callers.whole(3, model="other")).status_code == 200

        await until(is_served, "it is served")
        running = asyncio.create_task(callers.stream(20, model="other"))

        async def has_begun() -> bool:
            return callers.began == 2

        await until(has_begun, "streams of both have begun")
        assert (await callers.operate("models/other/unload"))["ok"]

        async def is_gone() -> bool:
            return (await callers.whole(3, model="other")).status_code == 404

        await until(is_gone, "it is no longer served")
        for task in (running, kept):
            events = await task
            assert events[-1]["choices"][0]["finish_reason"] == "length", events[-1]
        assert (await callers.whole(3)).status_code == 200

    with_callers(proxy, "steady", body)
