"""The stream of the live status as an ASGI answer: how many may read it at once."""

from __future__ import annotations

import asyncio

import pytest
from prometheus_client import CollectorRegistry
from starlette.types import Message

from proxy.access.concurrency import ConcurrencyLimit
from proxy.api.live_routes import LiveStatus, LiveStream
from proxy.domain.errors import RateLimited
from proxy.telemetry.request_log import RequestLog


def test_viewers_are_bounded_and_one_that_leaves_makes_room():
    sent: list[Message] = []
    status = LiveStatus(CollectorRegistry(), RequestLog(), dict, stopping=asyncio.Event())
    viewers = ConcurrencyLimit(1)

    async def receive() -> Message:
        await asyncio.sleep(0 if left.is_set() else 0.01)
        return {"type": "http.disconnect" if left.is_set() else "http.request"}

    async def send(message: Message) -> None:
        sent.append(message)

    async def view() -> None:
        await LiveStream(status, viewers)({}, receive, send)

    async def both() -> None:
        first = asyncio.create_task(view())
        await asyncio.sleep(0.05)
        with pytest.raises(RateLimited, match="at most 1"):
            await view()
        left.set()
        await first
        await view()

    left = asyncio.Event()
    asyncio.run(both())
    assert [message["type"] for message in sent].count("http.response.start") == 2
