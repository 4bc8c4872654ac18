"""time_limits: what passes, what counts as silence or as too long, and who is closed."""

from __future__ import annotations

import asyncio
import time

import pytest

from proxy.domain.errors import DeadlineExceeded, EngineStalled
from proxy.domain.output import FinishReason, TokenDelta
from tests.fixtures.engine_streams import limited

pytestmark = pytest.mark.anyio

SHORT_S = 0.05
ONLY_SILENCE = {"silence_s": SHORT_S, "whole_s": 60}
ONLY_WHOLE = {"silence_s": 60, "whole_s": SHORT_S}


class Items:
    """Yields a delta after each of these pauses, with the pause as its one token, then hangs for
    ever where told to.
    """

    def __init__(self, *pauses_s: float, hangs: bool = False) -> None:
        self.pauses_s, self.hangs = pauses_s, hangs
        self.is_closed = False

    async def run(self):
        try:
            for pause_s in self.pauses_s:
                await asyncio.sleep(pause_s)
                yield TokenDelta((pause_s,))
            if self.hangs:
                await asyncio.Event().wait()
            yield TokenDelta((), finish=FinishReason.STOP)
        finally:
            self.is_closed = True


async def collected(
    items: Items, rest_s: float = 0.0, limits: dict[str, float] = ONLY_SILENCE
) -> list[float]:
    got = []
    async for delta in limited(items.run(), **limits):
        got += delta.token_bytes
        await asyncio.sleep(rest_s)
    return got


@pytest.mark.parametrize(
    ("limits", "pauses_s", "error", "match"),
    [
        *((ONLY_SILENCE, each, EngineStalled, r"for 0\.05 s") for each in ((), (0,), (0, 0.03, 0))),
        *((ONLY_WHOLE, each, DeadlineExceeded, r"than 0\.05 s") for each in ((), [0.01] * 20)),
    ],
)
async def test_silence_and_a_request_that_takes_too_long_are_errors_and_close_the_items(
    limits, pauses_s, error, match
):
    items = Items(*pauses_s, hangs=True)
    began = time.monotonic()
    with pytest.raises(error, match=f"{match}econds"):
        await collected(items, limits=limits)
    assert items.is_closed
    assert time.monotonic() - began >= SHORT_S
    await asyncio.sleep(0)  # the task itself is not cancelled


async def test_the_consumers_own_time_does_not_count():
    items = Items(0, 0, 0)
    assert len(await collected(items, rest_s=2 * SHORT_S)) == 3


async def test_after_that_time_a_late_consumer_still_gets_what_is_there_already():
    async def items():
        yield TokenDelta((b"0",))
        yield TokenDelta((b"1",))
        await asyncio.sleep(0.01)
        yield TokenDelta((b"2",))

    got = limited(items(), **ONLY_WHOLE)
    assert (await anext(got)).token_bytes == (b"0",)
    await asyncio.sleep(2 * SHORT_S)
    assert (await anext(got)).token_bytes == (b"1",)
    with pytest.raises(DeadlineExceeded):
        await anext(got)


async def test_a_cancel_from_outside_stays_a_cancel():
    items = Items(hangs=True)
    task = asyncio.ensure_future(collected(items))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert items.is_closed
