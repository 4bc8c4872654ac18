"""Token streams of the proxy's client against the real tritonserver: answers and errors."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator

import pytest

from proxy.domain.engine import EngineRequest
from proxy.domain.errors import DeadlineExceeded, InvalidRequest
from proxy.domain.model import ModelCard
from proxy.domain.output import TokenDelta
from proxy.domain.request import Sampling
from proxy.triton.catalog import TritonCatalog
from proxy.triton.client import TritonClient
from proxy.triton.target import Target
from tests.fixtures.engine_streams import limited
from tests.fixtures.stack import SECRET

pytestmark = pytest.mark.anyio

NUMBERS = itertools.count()


@pytest.fixture(scope="module", autouse=True)
async def one_loop(anyio_backend) -> AsyncIterator[None]:
    """For all tests: some of grpc.aio's events come when the test that they belong to has ended."""
    yield  # noqa: PT022 - what only returns would keep no loop


@pytest.fixture
def client(stack) -> TritonClient:
    return TritonClient(Target(f"127.0.0.1:{stack.triton_grpc_port}", secret=SECRET))


async def asked(client: TritonClient, model: str = "demo", **fields) -> EngineRequest:
    (loaded,) = [one for one in await TritonCatalog(client).load() if one.name == model]
    values = {
        "text": "Once",
        "max_tokens": 8,
        "timeout_s": 20,
        "sampling": Sampling(seed=1, ignore_eos=True),
    }
    return EngineRequest(
        id=f"streams-{next(NUMBERS)}",
        model=ModelCard(name=model, triton_model=model, facts=loaded.facts),
        **{**values, **fields},
    )


async def deltas(client: TritonClient, request: EngineRequest) -> list[TokenDelta]:
    return [delta async for delta in client.generate(request)]


async def test_many_streams_at_once_on_one_connection(client):
    async with client:
        request = await asked(client, "demo", max_tokens=20)
        calls = [deltas(client, await asked(client, "demo", max_tokens=20)) for _ in range(40)]
        answers = await asyncio.gather(*calls)
        alone = text(await deltas(client, request))
    assert {text(answer) for answer in answers} == {alone}


def text(answer: list[TokenDelta]) -> bytes:
    return b"".join(part for delta in answer for part in delta.token_bytes)


async def test_a_prompt_of_megabytes_is_sent_and_refused_by_the_tokenizer(client):
    async with client:
        request = await asked(client, text=None, token_ids=(1,) * 1_000_000)
        with pytest.raises(InvalidRequest) as refused:
            await deltas(client, request)
    assert refused.value.code == "context_length_exceeded"


async def test_a_deadline_ends_the_stream_and_the_engine(client, stack):
    before = stack.settled_engine("endless")
    async with client:
        running = client.generate(await asked(client, "endless", max_tokens=4000))
        with pytest.raises(DeadlineExceeded):
            _ = [one async for one in limited(running, silence_s=9, whole_s=0.05)]
    after = stack.settled_engine("endless")
    assert after["generated_tokens"] - before["generated_tokens"] < 4000


async def test_streams_that_are_left_stop_in_the_engine_and_the_others_go_on(client, stack):
    """A stream may end by itself before its stop arrives, on a machine that is fast and busy."""
    before, left = stack.settled_engine("endless"), 0

    async def since(name: str) -> float:
        return (await asyncio.to_thread(stack.settled_engine, "endless"))[name] - before[name]

    async with client:
        stays = asyncio.create_task(deltas(client, await asked(client, "endless", max_tokens=100)))
        while left < 3 or (await since("requests_cancelled") < 3 and left < 60):
            leaving = client.generate(await asked(client, "endless", max_tokens=4000))
            await anext(leaving)
            await leaving.aclose()
            left += 1
        assert len(text(await stays)) > 0
        assert await since("requests_cancelled") >= 3
        assert await since("generated_tokens") < left * 4000
