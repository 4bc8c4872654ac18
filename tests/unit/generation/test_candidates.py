"""Streams side by side: all events of each in order, one end for all."""

from __future__ import annotations

import asyncio
from functools import partial

from proxy.access.start_gate import StartGate
from proxy.domain.completion import fold
from proxy.domain.errors import EngineFailed
from proxy.domain.events import Events, Finished, TextDelta
from proxy.domain.output import FinishReason, Usage
from proxy.generation.candidates import best, interleaved


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


def test_the_best_of_each_prompt_in_their_order():
    means = [-3.0, -1.0, -2.0, -1.0, -9.0, -0.5]

    async def source():
        for choice, mean in enumerate(means):
            yield TextDelta(str(choice), choice=choice)
            yield end(choice, mean)

    async def run():
        return fold([event async for event in best(source(), candidates=3, choices=2)])

    completion = asyncio.run(run())
    assert [answer.text for answer in completion.choices] == ["1", "2", "5", "3"]
    assert completion.usage == Usage(prompt_tokens=12, completion_tokens=6)
