"""Work for a client that disconnects is cancelled, and nothing else; with our server and others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from proxy.api.http.client_disconnect import CancelOnDisconnect
from proxy.domain.errors import ShuttingDown

pytestmark = pytest.mark.anyio


class Client:
    """ASGI's `receive`: gives the body, and the disconnect when `leave` was called."""

    def __init__(self) -> None:
        self._has_left = asyncio.Event()
        self._has_sent = False

    def leave(self) -> None:
        self._has_left.set()

    async def __call__(self) -> dict[str, object]:
        if not self._has_sent:
            self._has_sent = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self._has_left.wait()
        return {"type": "http.disconnect"}


class OwnClient(Client):
    """As our own server has it."""

    then: Callable[[], None] | None = None

    def on_disconnect(self, then: Callable[[], None] | None) -> bool:
        self.then = then
        return not self._has_left.is_set()

    def leave(self) -> None:
        super().leave()
        if self.then is not None:
            self.then()


@pytest.fixture(params=[Client, OwnClient])
async def client(request) -> Client:
    return request.param()


async def test_work_that_ends_leaves_no_task_behind(client):
    before = asyncio.all_tasks()
    async with CancelOnDisconnect(client):
        assert (asyncio.all_tasks() == before) is isinstance(client, OwnClient)
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before


async def test_a_client_that_leaves_ends_the_work_and_nothing_else(client):
    steps = []
    asyncio.get_running_loop().call_later(0.01, client.leave)
    async with CancelOnDisconnect(client):
        try:
            await asyncio.sleep(10)
            steps.append("not reached")
        finally:
            steps.append("cleaned up")
    await asyncio.sleep(0)  # a cancellation that is left over would be raised here
    assert steps == ["cleaned up"]
    task = asyncio.current_task()
    assert not hasattr(task, "cancelling") or task.cancelling() == 0


async def test_a_client_that_left_before_the_work_began_ends_it(client):
    async def work() -> None:
        async with CancelOnDisconnect(client):
            await asyncio.sleep(10)

    client.leave()
    await asyncio.wait_for(work(), 5)


async def test_a_server_that_stops_says_so(client):
    async def work() -> None:
        async with CancelOnDisconnect(client):
            await asyncio.sleep(10)

    task = asyncio.ensure_future(work())
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(ShuttingDown):
        await task
