"""The parent's end: it owns the queues, and its workers reach them over a Unix socket.

Started by http_server.workers.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from triton_openai.proxy.domain.errors import RateLimited
from triton_openai.proxy.domain.scheduling import Standing, Ticket
from triton_openai.proxy.ledger import wire
from triton_openai.proxy.scheduling import messages
from triton_openai.proxy.scheduling.fair_queue import Clock, FairQueue
from triton_openai.proxy.scheduling.fair_queues import FairQueues
from triton_openai.proxy.scheduling.limits import QueueLimits
from triton_openai.proxy.scheduling.stream import State, Stream
from triton_openai.proxy.scheduling.timekeeper import Timekeeper

SOCKET = "queues"  # in the folder that the workers share


@asynccontextmanager
async def served(
    limits: QueueLimits, folder: Path, clock: Clock = time.monotonic
) -> AsyncIterator[None]:
    """Serves the queues to this parent's workers, in a folder that only its user may enter."""
    parent = _Parent(limits, clock)
    try:
        async with wire.served(folder / SOCKET, lambda: _Worker(parent)):
            yield
    finally:
        parent.timekeeper.stop()


class _Parent:
    def __init__(self, limits: QueueLimits, clock: Clock) -> None:
        self.workers: set[_Worker] = set()
        self.queues = FairQueues(limits, clock)
        self.timekeeper = Timekeeper(self.queues, clock, self._flush)

    def _flush(self) -> None:
        for worker in self.workers:
            worker.send_moves()


class _Worker(wire.Framed):
    """One worker, and the streams that it has in the queues. When it dies, they end."""

    def __init__(self, parent: _Parent) -> None:
        super().__init__()
        self._parent = parent
        self._streams: dict[int, _RemoteStream] = {}
        self._moves: list[tuple[int, int, float | None]] = []
        parent.workers.add(self)

    def take(self, message: wire.Message) -> None:
        match message:
            case [messages.ENTER, number, *ticket]:
                self._enter(number, messages.ticket_of(ticket))
            case [messages.CHARGE, charges]:
                for charge in charges:
                    self._charge(*charge)
                self._parent.queues.rearrange()
            case [messages.RELEASE, number, tokens, prompt]:
                self._charge(number, tokens, prompt)
                self._release(number)
            case [messages.LEAVE, number]:
                if (stream := self._streams.pop(number, None)) is not None:
                    stream.queue.leave(stream)
            case [messages.CAPACITY, queue, streams, spare]:
                self._parent.queues.set_capacity(queue, streams, self, spare)
            case [messages.STATES, number, tenants]:
                for state in self._parent.queues.states(tenants):
                    self.send((messages.STATE, number, *messages.packed_state(state)))
                self.send((messages.STATE, number))
            case _:
                raise ValueError(f"an unknown message: {message!r}")

    def end(self) -> None:
        """Those that wait leave first: none of them is to run instead of one that ends here."""
        self._parent.workers.discard(self)
        streams, self._streams = self._streams.values(), {}
        for state in (State.WAITING, State.RUNNING):
            for stream in streams:
                if stream.state is state:
                    stream.queue.leave(stream)
        self._parent.queues.forget(self)

    def note_move(self, number: int, standing: Standing) -> None:
        self._moves.append((number, standing.position, standing.wait_s))
        if len(self._moves) >= messages.AT_ONCE:
            self.send_moves()

    def send_moves(self) -> None:
        if self._moves:
            self.send((messages.MOVED, self._moves))
            self._moves = []

    def forget(self, number: int) -> None:
        """It was refused."""
        self._streams.pop(number, None)

    def _enter(self, number: int, ticket: Ticket) -> None:
        stream = self._streams[number] = _RemoteStream(ticket, number, self)
        stream.queue = self._parent.queues[ticket.queue]
        try:
            self._parent.queues.enter(stream)
        except RateLimited as error:
            stream.refused(error)
        if stream.state is State.WAITING:
            self._parent.timekeeper.watch()
            self.send_moves()

    def _charge(self, number: int, tokens: int, prompt: int | None) -> None:
        stream = self._streams[number]
        if prompt is not None:
            stream.queue.see_prompt(stream, prompt)
        stream.queue.charge(stream, tokens)

    def _release(self, number: int) -> None:
        stream = self._streams.pop(number)
        stream.queue.release(stream)


class _RemoteStream(Stream):
    __slots__ = ("_number", "_worker", "queue")

    queue: FairQueue

    def __init__(self, ticket: Ticket, number: int, worker: _Worker) -> None:
        super().__init__(ticket)
        self._number = number
        self._worker = worker

    def granted(self) -> None:
        self._worker.send((messages.GRANTED, self._number, self.took_over))

    def refused(self, error: RateLimited) -> None:
        self._worker.forget(self._number)
        refusal = (messages.REFUSED, self._number, error.message, error.retry_after_s)
        self._worker.send(refusal)

    def moved(self, standing: Standing) -> None:
        self._worker.note_move(self._number, standing)

    def preempted(self) -> None:
        self._worker.send((messages.PREEMPTED, self._number))
