"""Streams side by side: all events of each in order, one end for all."""

from __future__ import annotations

import asyncio
from functools import partial

from proxy.access.start_gate import StartGate
from proxy.domain.errors import EngineFailed
from proxy.domain.events import Events, Finished, TextDelta
from proxy.domain.output import FinishReason, Usage
from proxy.generation.candidates import interleaved


class Source:
    """A stream that tells whether it was closed."""

    def __init__(self) -> None:
        self.is_closed = False

    async def events(self, choice: int, count: int, *, fails=False, hangs=False) -> Events:
        try:
            for at in range(count):
                await asyncio.sleep(0)
                yield TextDelta(f"{choice}{at} ", choice=choice)
            if fails:
                raise EngineFailed("it broke")
            if hangs:
                await asyncio.Event().wait()
            yield end(choice)
        finally:
            self.is_closed = True


def end(choice: int, mean: float | None = None) -> Finished:
    usage = Usage(prompt_tokens=2, completion_tokens=1)
    return Finished(reason=FinishReason.STOP, usage=usage, choice=choice, mean_log_prob=mean)


def test_closing_early_closes_all():
    sources = [Source(), Source()]

    async def run():
        streams = [partial(source.events, 0, 1, hangs=True) for source in sources]
        events = interleaved(streams, StartGate())
        await anext(events)
        await events.aclose()

    asyncio.run(run())
    assert all(source.is_closed for source in sources)


def test_a_slow_reader_holds_the_streams_back():
    taken = []

    async def source():
        for at in range(100):
            taken.append(at)
            yield TextDelta("x")

    async def run():
        events = interleaved([source], StartGate())
        await anext(events)
        await asyncio.sleep(0.01)
        await events.aclose()

    asyncio.run(run())
    assert len(taken) < 10
