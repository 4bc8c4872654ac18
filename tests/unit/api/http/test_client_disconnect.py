from __future__ import annotations

import asyncio

import pytest

from proxy.api.http.client_disconnect import CancelOnDisconnect
from proxy.domain.errors import ShuttingDown

pytestmark = pytest.mark.anyio


class Client:
    """`receive` gives the body, and the end when it has left."""

    def __init__(self) -> None:
        self.has_left = asyncio.Event()
        self._has_sent = False

    async def receive(self) -> dict[str, object]:
        if not self._has_sent:
            self._has_sent = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self.has_left.wait()
        return {"type": "http.disconnect"}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_work_that_ends_leaves_no_task_behind():
    before = asyncio.all_tasks()
    async with CancelOnDisconnect(Client().receive):
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before


async def test_a_client_that_leaves_ends_the_work_and_nothing_else():
    client, steps = Client(), []
    asyncio.get_running_loop().call_later(0.01, client.has_left.set)
    async with CancelOnDisconnect(client.receive):
        try:
            await asyncio.sleep(10)
            steps.append("not reached")
        finally:
            steps.append("cleaned up")
    await asyncio.sleep(0)  # a cancellation that is left over would be raised here
    assert steps == ["cleaned up"]
    task = asyncio.current_task()
    assert not hasattr(task, "cancelling") or task.cancelling() == 0


async def test_a_client_that_left_before_the_last_step_cancels_nothing_after_it():
    client = Client()
    async with CancelOnDisconnect(client.receive):
        await asyncio.sleep(0)
        client.has_left.set()  # the watching task has not run since
    await asyncio.sleep(0.01)


async def test_a_server_that_stops_says_so():
    async def work() -> None:
        async with CancelOnDisconnect(Client().receive):
            await asyncio.sleep(10)

    task = asyncio.ensure_future(work())
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(ShuttingDown):
        await task


async def test_errors_of_the_work_pass():
    with pytest.raises(KeyError):
        async with CancelOnDisconnect(Client().receive):
            raise KeyError("mine")
