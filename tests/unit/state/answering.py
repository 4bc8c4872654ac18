"""Generations that the test steps, and what reads an answer to its end."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

from proxy.state.answer import Head, KeyedRequest, Notice, OpenAnswer
from proxy.state.relay import Relay, RunningAnswer

HEAD = Head(
    status=200,
    headers=(("content-type", "text/event-stream; charset=utf-8"),),
    request_id="req_1",
    route="/x",
)


def event(number: int) -> bytes:
    return b'id: %d\ndata: {"n":%d}\n\n' % (number, number)


def asked(key: str = "k", *, tenant: str = "t", body: bytes = b"{}", **fields: Any) -> KeyedRequest:
    return KeyedRequest(
        id=hashlib.sha256(f"{tenant} {key}".encode()).digest(),
        tenant=hashlib.sha256(tenant.encode()).digest(),
        body=hashlib.sha256(body).digest(),
        **fields,
    )


class Generation:
    """Gives so many events, each when `step` lets it."""

    def __init__(self, events: int = 5, head: Head = HEAD) -> None:
        self.runs = 0
        self.was_abandoned = False
        self._events = events
        self._head = head
        self._steps = asyncio.Semaphore(0)

    def step(self, count: int = 1) -> None:
        for _ in range(count):
            self._steps.release()

    async def __call__(self, running: RunningAnswer) -> None:
        self.runs += 1
        abandoned = asyncio.create_task(running.abandoned.wait())
        writing = asyncio.create_task(self._write(running))
        await asyncio.wait((abandoned, writing), return_when=asyncio.FIRST_COMPLETED)
        self.was_abandoned = abandoned.done()
        for task in (abandoned, writing):
            task.cancel()
        await asyncio.wait((abandoned, writing))

    async def _write(self, running: RunningAnswer) -> None:
        running.begin(self._head)
        for number in range(1, self._events + 1):
            await self._steps.acquire()
            await running.append(event(number))
        running.complete()


def whole(events: int = 5, after: int = 0) -> bytes:
    return b"".join(event(number) for number in range(after + 1, events + 1))


async def read(answer: OpenAnswer) -> bytes:
    async with aclosing(answer):
        await answer.head()
        return b"".join([part async for part in answer.parts() if not isinstance(part, Notice)])


async def ask(relay: Relay, generation: Generation, request: KeyedRequest | None = None) -> bytes:
    return await read(await relay.open(request or asked(), generation))


async def until(condition: Callable[[], object]) -> None:
    while not condition():  # noqa: ASYNC110  (there is no event)
        await asyncio.sleep(0.005)


async def settled(relay: Relay) -> None:
    """Until what has finished is kept, or released."""
    await until(lambda: not any(not each.task.done() for each in relay._running.values()))
    await until(lambda: not relay._releases and len(relay._tasks) == 1)
