"""Two tritonservers whose small caches evict: what routing expects in them, and what they find."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from dataclasses import dataclass

import httpx
import pytest
import yaml

from tests.fixtures.pool_load import Callers, until
from tests.fixtures.running import ARTIFACTS, ROOT, Start
from tests.fixtures.stack import HANG_S, Stack
from tests.server.pools.conftest import are_ready, listed

pytestmark = pytest.mark.xdist_group("pools")
CACHE_MB = 8  # 1,302 tokens of this model: two prompts and the beginning of a third
PROMPT = 512  # tokens
INDEX_BLOCK = 32  # tokens; an engine finds its own blocks of 16
ASKED = re.compile(
    r'^nv_inference_request_success\{model="demo_engine"[^}]*\} (\S+)$', re.MULTILINE
)
CACHED = re.compile(
    r"^proxy_endpoint_(expected_)?cached_tokens_total\{[^}]*\} (\S+)$", re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class Tritons:
    """Two, and the URL that names them."""

    each: tuple[Stack, ...]
    url: str

    def asked(self) -> list[int]:
        """How many requests each engine has had. Most of them ask for changes of its cache."""
        pages = [httpx.get(f"http://127.0.0.1:{one.triton_metrics_port}/metrics", timeout=HANG_S)
                 for one in self.each]  # fmt: skip
        return [int(float(found[1])) for one in pages if (found := ASKED.search(one.text))]


@pytest.fixture(scope="module")
def tritons(start: Start, tmp_path_factory) -> Tritons:
    folder = ARTIFACTS / "small_caches"
    folder.mkdir(parents=True, exist_ok=True)
    demo = yaml.safe_load((ROOT / "models.yaml").read_text())["models"]["demo"]
    demo = {**demo, "weights": str(ROOT / demo["weights"])}
    demo["onnx"] = {**demo["onnx"], "kv_cache_mb": CACHE_MB}
    models_file = folder / "models.yaml"
    models_file.write_text(yaml.safe_dump({"models": {"demo": demo}}))
    each = tuple(
        start("triton", MODELS_FILE=models_file, ARTIFACTS_DIR=folder / str(number))
        for number in range(2)
    )
    are_ready(*each)
    file = tmp_path_factory.mktemp("endpoints") / "endpoints"
    file.write_text("\n".join(map(listed, each)))
    return Tritons(each, f"file+grpc://{file}")


def ids(number: int) -> list[int]:
    return [10 + (number * 397 + at * (at + number)) % 1_900 for at in range(PROMPT)]


class Sender:
    """Of one proxy. send: a prompt, once all that was sent before is reported; returns how many of
    its tokens routing expected in the endpoint's cache, and how many the engine found there.
    fill: the same at once, for a prompt that begins like no other.
    """

    def __init__(self, proxy: Stack, tritons: Tritons, proxies: int) -> None:
        self.callers = Callers(proxy, "demo")
        self._tritons, self._proxies = tritons, proxies

    async def send(self, prompt: list[int] | str) -> tuple[int, int]:
        await self.reported()
        return await self.fill(prompt)

    async def fill(self, prompt: list[int] | str) -> tuple[int, int]:
        before = await self._cached()
        answer = await self.callers.whole(2, prompt=prompt)
        assert answer.status_code == 200, answer.text
        after = await self._cached()
        return after[0] - before[0], after[1] - before[1]

    async def reported(self) -> None:
        """Every proxy has asked every engine three times, so that no guess is left."""
        asked = self._tritons.asked()

        async def is_over() -> bool:
            pairs = zip(asked, self._tritons.asked(), strict=True)
            return all(now - before >= 4 * self._proxies for before, now in pairs)

        await until(is_over, "the proxies ask the engines")

    async def _cached(self) -> tuple[int, int]:
        page, found = (await self.callers.client.get("/metrics")).text, Counter[str]()
        for expected, value in CACHED.findall(page):
            found[expected] += int(float(value))
        return found["expected_"], found[""]


def run(body, tritons: Tritons, *proxies: Stack) -> None:
    async def with_senders() -> None:
        senders = [Sender(one, tritons, len(proxies)) for one in proxies]
        for one in senders:
            for name in await one.callers.endpoints():
                await one.callers.until_state(name, "ready")
        await body(*senders)
        for one in senders:
            await one.callers.client.aclose()

    asyncio.run(with_senders())


@pytest.fixture(scope="module")
def proxy(tritons, proxy_of) -> Stack:
    return proxy_of(TRITON_URL=tritons.url)


def test_what_routing_expects_in_a_cache_is_what_the_engine_finds(proxy, tritons):
    async def body(sender: Sender) -> None:
        seen = [await sender.fill(ids(n)) for n in range(6)]
        seen += [await sender.send(ids(n)) for n in (5, 0, 4, 1, 0, 2, 2, 3)]
        assert all(0 <= found - expected < INDEX_BLOCK for expected, found in seen), f"{seen}"
        found = [found for _, found in seen]
        assert found[:6] == [0] * 6
        assert found[6] == found[12] == PROMPT - 16, "a prompt that has just been sent"
        assert min(found[7:12]) < PROMPT - 16, f"nothing was evicted: {seen}"

    run(body, tritons, proxy)


def test_of_text_it_is_right_but_for_an_estimate_of_its_last_blocks(proxy, tritons):
    text = "".join(f"Guest {n} orders soap, bread and {n * 7 % 31} candles. " for n in range(24))
    off = 64  # tokens: a block of 128 characters, and a block of the engine

    async def body(sender: Sender) -> None:
        seen = [await sender.fill(text)]
        seen += [await sender.send(one) for one in (text, text + "How many guests are there?")]
        for number in range(4):
            await sender.fill(ids(10 + number))
        seen.append(await sender.send(text))
        assert all(abs(found - expected) <= off for expected, found in seen), seen
        assert seen[2][1] >= seen[1][1] > 200
        assert seen[3][1] <= seen[1][1] - 2 * off, f"it was not evicted: {seen}"

    run(body, tritons, proxy)


def test_another_proxys_requests_count(proxy, proxy_of, tritons):
    """A prompt that it knows is in the cache again because of another proxy."""

    async def body(one: Sender, other: Sender) -> None:
        for number in range(5):
            await one.fill(ids(20 + number))
        assert (await other.send(ids(20)))[1] < PROMPT // 2, "it was not evicted"
        assert await one.send(ids(20)) == (PROMPT - 16, PROMPT - 16)

    run(body, tritons, proxy, proxy_of(TRITON_URL=tritons.url))
