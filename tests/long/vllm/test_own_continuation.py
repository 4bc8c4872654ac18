"""Streams of a real vLLM that lose their engine go on at another one, where that is exact."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.fixtures.pool_load import Callers, text_of, until
from tests.long.vllm.own import PROMPTS, VLLM, Pair, address_of

pytestmark = [
    pytest.mark.xdist_group("own_vllm"),
    pytest.mark.timeout(1800),
]

TOKENS, MIDDLE = 500, 40  # a stream in its middle has so many events
GREEDY = {"temperature": 0, "ignore_eos": True, "stream_options": {"include_usage": True}}
STREAMS = 8
INEXACT = {
    "restore the state of a guide": {"guided_regex": "[a-z]{450}"},
    "random numbers of a seed": {"temperature": 1, "seed": 4},
    "counts presence and frequency penalties": {"presence_penalty": 0.5},
    "a bad word may begin": {"bad_words": ["shop"]},
}


def run(pair: Pair, body: Callable[[Callers], Awaitable[None]]) -> None:
    async def with_callers() -> None:
        callers = Callers(pair.proxy, VLLM, events=MIDDLE)
        async with callers.client:
            await are_ready(pair, callers)
            await body(callers)
            await are_ready(pair, callers)

    asyncio.run(with_callers())


async def are_ready(pair: Pair, callers: Callers) -> None:
    for triton in pair.tritons:
        await callers.until_state(address_of(triton), "ready")


async def begun(callers: Callers, bodies: list[dict[str, Any]]) -> list[asyncio.Task[Any]]:
    """A stream for each body, in its middle."""
    callers.began = 0
    streams = [asyncio.create_task(callers.stream(TOKENS, **body)) for body in bodies]

    async def are_in_the_middle() -> bool:
        return callers.began == len(bodies)

    await until(are_in_the_middle, "all streams have tokens")
    return streams


@pytest.mark.parametrize("loss", ["tritonserver is killed", "it drains"])
def test_greedy_streams_that_lose_their_engine_have_the_undisturbed_texts(pair, loss):
    async def body(callers: Callers) -> None:
        bodies = [{**GREEDY, "prompt": prompt} for prompt in PROMPTS]
        undisturbed = await asyncio.gather(*(callers.stream(TOKENS, **one) for one in bodies))
        cause = "drained" if loss == "it drains" else "lost"
        before = await callers.continued(cause=cause)
        streams = await begun(callers, bodies * (STREAMS // len(bodies)))
        counts = await callers.streams()
        victim = max(counts, key=counts.__getitem__)
        if loss == "it drains":
            await callers.operate("endpoints/drain", address=victim)
        else:
            pair.at(victim).tritonserver().kill()
        disturbed = await asyncio.gather(*streams)
        assert await callers.continued(cause=cause) > before
        for one, other in zip(disturbed, undisturbed * (STREAMS // len(bodies)), strict=True):
            assert text_of(one) == text_of(other)
            assert (one[-1]["usage"], one[-2]["choices"][0]["finish_reason"]) == (
                other[-1]["usage"],
                "length",
            )
        if loss == "it drains":
            await callers.operate("endpoints/undrain", address=victim)

    run(pair, body)


def test_what_vllm_cannot_continue_exactly_ends_with_an_error_that_says_why(pair):
    kept, victim = pair.tritons

    async def body(callers: Callers) -> None:
        await callers.operate("endpoints/drain", address=address_of(kept))
        await callers.until_state(address_of(kept), "drained")
        bodies = [{"prompt": "Hello", **GREEDY, **more} for more in (*INEXACT.values(), {})]
        streams = await begun(callers, bodies)
        await callers.operate("endpoints/undrain", address=address_of(kept))
        await callers.until_state(address_of(kept), "ready")
        victim.engine_processes(VLLM)[0].kill()
        *refused, greedy = await asyncio.gather(*streams)
        assert greedy[-1]["usage"]["completion_tokens"] == TOKENS
        for reason, events in zip(INEXACT, refused, strict=True):
            error = events[-1]["error"]
            assert error["code"] == "model_unavailable"
            assert "It cannot be continued, because" in error["message"]
            assert reason in error["message"]

    run(pair, body)
