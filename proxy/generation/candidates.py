"""The streams of one request side by side: interleaved, or the best of them. Called by service."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import replace

from proxy.access.start_gate import StartGate
from proxy.domain.events import Events, Finished, OutputEvent
from proxy.domain.output import AnswerTimes, Usage

REPLAY_AT_ONCE = 256  # events


async def interleaved(streams: Sequence[Callable[[], Events]], gate: StartGate) -> Events:
    """Events of all streams as they come. An error in one ends all; so does closing this.

    Each is made when it is its turn to begin.
    """
    ready: asyncio.Queue[OutputEvent | Exception | None] = asyncio.Queue(len(streams))
    own = asyncio.current_task()
    name = None if own is None else own.get_name()  # see telemetry.loop_lag
    tasks = [asyncio.create_task(_feed(stream, ready, gate), name=name) for stream in streams]
    try:
        running = len(tasks)
        while running:
            event = await ready.get()
            if isinstance(event, Exception):
                raise event
            if event is None:
                running -= 1
            else:
                yield event
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def _feed(
    stream: Callable[[], Events],
    ready: asyncio.Queue[OutputEvent | Exception | None],
    gate: StartGate,
) -> None:
    """None follows the last event. The queue is short: a slow reader slows the engine's stream."""
    try:
        await gate.wait()
        async with aclosing(stream()) as events:
            async for event in events:
                await ready.put(event)
    except Exception as error:
        await ready.put(error)
    else:
        await ready.put(None)


async def best(stream: Events, *, candidates: int, choices: int) -> Events:
    """Of each prompt's `candidates` the `choices` with the highest log-probability per token.

    All of them cost tokens and time: the first choice's usage and times are those of every one.
    """
    events: dict[int, list[OutputEvent]] = {}
    async with aclosing(stream):
        async for event in stream:
            events.setdefault(event.choice, []).append(event)
    ends = {choice: _end(mine) for choice, mine in events.items()}
    spent = sum((end.usage for end in ends.values()), start=Usage())
    times = AnswerTimes.of_choices(end.times for end in ends.values())
    for first in range(0, len(events), candidates):
        ranked = sorted(
            range(first, first + candidates), key=lambda one: -(ends[one].mean_log_prob or 0.0)
        )
        for place, candidate in enumerate(ranked[:choices]):
            index = first // candidates * choices + place
            for number, event in enumerate(events[candidate], 1):
                if number % REPLAY_AT_ONCE == 0:
                    await asyncio.sleep(0)
                if isinstance(event, Finished):
                    event = replace(
                        event,
                        usage=Usage() if index else spent,
                        times=AnswerTimes() if index else times,
                    )
                yield replace(event, choice=index)


def _end(events: list[OutputEvent]) -> Finished:
    end = events[-1]
    assert isinstance(end, Finished)  # what service's streams end with
    return end
