"""handover: which worker gets a connection, and what becomes of one that no worker takes."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable

import pytest
import uvloop

from triton_openai.proxy.http_server.handover import LATE_S, MOST_UNTAKEN, Handover, Recipient
from triton_openai.proxy.launch.triton_server.ports import bind


class Worker:
    """The other end of a Recipient: takes connections and reports when it is told to."""

    def __init__(self, handover: Handover) -> None:
        self._channel, theirs = socket.socketpair()
        self._channel.setblocking(False)
        self._reports, heard = socket.socketpair()
        self._taken = 0
        self._serving = asyncio.create_task(self._serve(handover, theirs, heard))

    def take(self) -> int:
        """How many were there."""
        before = self._taken
        with contextlib.suppress(BlockingIOError):
            while descriptors := socket.recv_fds(self._channel, 1, 1)[1]:
                self._taken += 1
                for descriptor in descriptors:
                    socket.close(descriptor)
        return self._taken - before

    async def report(self, opened: int, *, is_taking: bool = True) -> None:
        self._reports.sendall(b"%d %d %d\n" % (self._taken, opened, is_taking))
        await turns()

    async def end(self) -> None:
        """Also twice."""
        self._channel.close()
        self._reports.close()
        await self._serving

    async def _serve(
        self, handover: Handover, channel: socket.socket, heard: socket.socket
    ) -> None:
        with heard:
            await handover.serve(channel, heard)


class Place:
    def __init__(self) -> None:
        self.listening = bind("127.0.0.1", 0, "PORT")
        self.address = self.listening.getsockname()
        self.handover = Handover(self.listening, print)
        self.callers: list[socket.socket] = []
        self._workers: list[Worker] = []

    async def end(self) -> None:
        await self.handover.close()
        for worker in self._workers:
            await worker.end()
        for caller in self.callers:
            caller.close()

    async def call(self, count: int) -> None:
        for _ in range(count):
            self.callers.append(socket.create_connection(self.address))
        await turns()

    async def worker(self) -> Worker:
        worker = Worker(self.handover)
        self._workers.append(worker)
        await turns()
        return worker


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0.001)


def run(test: Callable[[Place], Awaitable[None]]) -> None:
    async def main() -> None:
        place = Place()
        try:
            await test(place)
        finally:
            await place.end()

    uvloop.run(main())


def test_the_worker_with_the_fewest_gets_the_next():
    async def test(place: Place) -> None:
        first, second = await place.worker(), await place.worker()
        await place.call(2)
        assert (first.take(), second.take()) == (1, 1)
        await first.report(opened=1)
        await second.report(opened=5)
        await place.call(4)
        assert (first.take(), second.take()) == (4, 0)
        await first.report(opened=5)
        await second.report(opened=0)
        await place.call(3)
        assert (first.take(), second.take()) == (0, 3)

    run(test)


def test_what_a_worker_has_not_taken_when_it_ends_goes_to_another():
    async def test(place: Place) -> None:
        first, second = await place.worker(), await place.worker()
        await place.call(8)
        await first.end()
        assert second.take() == 8
        await second.report(opened=8)
        await second.end()
        await place.call(3)
        third = await place.worker()
        assert third.take() == 3

    run(test)


def test_a_worker_that_drains_gets_no_more_and_leaves_what_it_has_not_taken():
    async def test(place: Place) -> None:
        first, second = await place.worker(), await place.worker()
        await place.call(6)
        await first.report(opened=0, is_taking=False)
        await place.call(2)
        assert second.take() == 8

    run(test)


def test_what_no_worker_has_room_for_waits_in_the_kernels_queue():
    async def test(place: Place) -> None:
        worker = await place.worker()
        await place.call(2 * MOST_UNTAKEN)
        assert worker.take() == MOST_UNTAKEN
        await worker.report(opened=MOST_UNTAKEN)
        await turns()
        assert worker.take() == MOST_UNTAKEN

    run(test)


def test_a_stop_hands_over_who_has_connected_and_refuses_the_next():
    async def test(place: Place) -> None:
        worker = await place.worker()
        place.callers = [socket.create_connection(place.address) for _ in range(5)]
        closing = asyncio.create_task(place.handover.close())
        await turns()
        assert not closing.done()
        assert worker.take() == 5
        await worker.report(opened=5)
        await closing
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(place.address)

    run(test)


def test_a_worker_that_takes_nothing_for_a_while_is_the_last_choice():
    now, (ours, theirs) = [0.0], socket.socketpair()
    hanging, caller = Recipient(ours, lambda: now[0]), socket.socket()
    with theirs, caller:
        hanging.give(caller)
        now[0] = LATE_S
        assert hanging.load == (False, 1)
        now[0] = 2 * LATE_S
        assert hanging.load == (True, 1)
        assert hanging.read_reports(b"1 1 1\n") == []
        assert hanging.load == (False, 1)
        hanging.end()


def test_of_several_reports_the_last_complete_one_holds():
    ours, theirs = socket.socketpair()
    worker = Recipient(ours, lambda: 0.0)
    with theirs:
        worker.read_reports(b"0 5 1\n0 7 1\n0 ")
        assert worker.load == (False, 7)
        worker.read_reports(b"9 1\n")
        assert worker.load == (False, 9)
        worker.end()
