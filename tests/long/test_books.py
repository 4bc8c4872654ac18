"""Two thousand requests of all kinds: the books balance, as long as the engine is not restarted."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator

import httpx
import pytest

from tests.fixtures.mixed_load import BATCH_LINES, MixedLoad, charged
from tests.fixtures.stack import HANG_S, Stack, eventually
from tests.fixtures.tenant_load import LoadedTenant, stack

REQUESTS, ROUNDS = 2_000, 10
BOOKS = LoadedTenant(name="books", streams=0)


@pytest.fixture
def running(tmp_path) -> Iterator[Stack]:
    with stack(4, BOOKS, FILES_URL=str(tmp_path)) as started:
        yield started


def counted(running: Stack) -> float:
    engine = running.settled_engine("demo")
    return engine["prompt_tokens"] + engine["generated_tokens"]


async def sent(running: Stack, draw: random.Random, requests: int) -> None:
    options = {"headers": {"Authorization": f"Bearer {BOOKS.key}"}, "timeout": HANG_S}
    async with httpx.AsyncClient(base_url=running.url, **options) as client:
        await MixedLoad(client, draw).send(requests, batches=1)


@pytest.mark.timeout(3600)
def test_what_is_charged_and_what_nobody_is_add_up_to_what_the_engine_counted(running):
    draw = random.Random(1)

    def difference() -> float:
        return counted(running) - charged(running.url, [BOOKS.key])

    for _ in range(ROUNDS):
        asyncio.run(sent(running, draw, REQUESTS // ROUNDS - BATCH_LINES))
        eventually(lambda: difference() == 0, 10, "the books balance")
