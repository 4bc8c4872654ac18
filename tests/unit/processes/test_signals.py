"""signals: one asks to stop, a second one hurries."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from proxy.processes.signals import Stop, stop_on_signals


async def signalled() -> Stop:
    with stop_on_signals() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        assert not await stop.unless_requested(asyncio.sleep(60))
        assert not stop.hurried.is_set()
        os.kill(os.getpid(), signal.SIGINT)
        assert not await stop.unless_hurried(asyncio.sleep(60))
        return stop


def test_the_first_asks_and_the_second_hurries():
    assert asyncio.run(signalled()).hurried.is_set()


def test_work_that_ends_by_itself_is_done():
    async def work() -> bool:
        return await Stop().unless_requested(asyncio.sleep(0))

    assert asyncio.run(work())


def test_work_that_fails_raises():
    async def fail() -> None:
        raise OSError("full")

    async def work() -> bool:
        return await Stop().unless_requested(fail())

    with pytest.raises(OSError, match="full"):
        asyncio.run(work())
