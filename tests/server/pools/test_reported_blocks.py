"""Two tritonservers whose small caches evict: what routing expects in them, and what they find."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable

import httpx
import pytest
import yaml

from tests.fixtures.pool_load import Callers, until
from tests.fixtures.running import ARTIFACTS, ROOT, Start
from tests.fixtures.stack import Stack
from tests.server.pools.conftest import address, are_ready, listed

pytestmark = pytest.mark.xdist_group("pools")
CACHE_MB = 8  # 1,302 tokens of this model: two prompts and their answers
PROMPT, PROMPTS = 512, 6
CACHED = re.compile(
    r"^proxy_endpoint_(expected_)?cached_tokens_total\{[^}]*\} (\S+)$", re.MULTILINE
)


@pytest.fixture(scope="module")
def small(start: Start) -> tuple[Stack, ...]:
    folder = ARTIFACTS / "small_caches"
    folder.mkdir(parents=True, exist_ok=True)
    demo = yaml.safe_load((ROOT / "models.yaml").read_text())["models"]["demo"]
    demo = {**demo, "weights": str(ROOT / demo["weights"])}
    demo["onnx"] = {**demo["onnx"], "kv_cache_mb": CACHE_MB}
    models_file = folder / "models.yaml"
    models_file.write_text(yaml.safe_dump({"models": {"demo": demo}}))
    started = tuple(
        start("triton", MODELS_FILE=models_file, ARTIFACTS_DIR=folder / str(number))
        for number in range(2)
    )
    are_ready(*started)
    return started


def ids(number: int, length: int = PROMPT) -> list[int]:
    return [10 + (number * 397 + at * (at + number)) % 1_900 for at in range(length)]


async def cached(callers: Callers) -> tuple[int, int]:
    """Prompt tokens so far: expected in the caches of all endpoints, and found there."""
    page, found = (await callers.client.get("/metrics")).text, Counter[str]()
    for expected, value in CACHED.findall(page):
        found[expected] += int(float(value))
    return found["expected_"], found[""]


def test_measure(small, proxy_of, tmp_path):
    file = tmp_path / "endpoints"
    file.write_text("\n".join(map(listed, small)))
    proxy = proxy_of(TRITON_URL=f"file+grpc://{file}")

    async def body() -> None:
        callers = Callers(proxy, "demo")
        async with callers.client:
            for one in small:
                await callers.until_state(address(one), "ready")
            await asyncio.sleep(12)
            for turn in range(4):
                await asyncio.sleep(1.5)
                for number in range(PROMPTS):
                    before = await cached(callers)
                    answer = await callers.whole(2, prompt=ids(number))
                    assert answer.status_code == 200, answer.text
                    after = await cached(callers)
                    print(
                        turn, number, [b - a for a, b in zip(before, after)], answer.json()["usage"]
                    )

    asyncio.run(body())
