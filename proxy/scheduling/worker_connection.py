"""A worker's connection to the parent of its queues: pipelined, with charges in batches."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import count

import structlog

from triton_openai.proxy.domain.errors import ErrorCode, LimitsUnavailable, RateLimited
from triton_openai.proxy.domain.scheduling import QueueState, Standing, Ticket
from triton_openai.proxy.ledger import wire
from triton_openai.proxy.scheduling import messages
from triton_openai.proxy.scheduling.meters import Meters
from triton_openai.proxy.scheduling.worker_permit import WorkerPermit

logger = structlog.get_logger(__name__)


class Question:
    """How the queues are: one message for each."""

    def __init__(self) -> None:
        self.states: list[QueueState] = []
        self.is_answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def take(self, state: wire.Message) -> None:
        if state:
            self.states.append(messages.state_of(state))
        elif not self.is_answered.done():
            self.is_answered.set_result(None)


class WorkerConnection(wire.Framed):
    """The streams that run go on without the parent; none that waits may begin."""

    def __init__(self) -> None:
        super().__init__()
        self._numbers = count(1)
        self._permits: dict[int, WorkerPermit] = {}
        self._meters: Meters[WorkerPermit] = Meters(self._charge)
        self._questions: dict[int, Question] = {}

    async def acquire(self, permit: WorkerPermit, ticket: Ticket) -> None:
        """Returns when the stream may run. What is granted to one that is cancelled is given back.

        Raises:
            RateLimited: the parent refuses it.
            LimitsUnavailable: the connection has ended.
        """
        if not self.is_connected:
            raise _unavailable()
        number = permit.number = next(self._numbers)
        self._permits[number] = permit
        self.send((messages.ENTER, number, *messages.packed(ticket)))
        try:
            await permit.turn
        except asyncio.CancelledError:
            permit.is_released = True
            if self._permits.pop(number, None) is not None:
                self.send((messages.LEAVE, number))
            if permit.turn.done() and not permit.turn.cancelled():
                permit.turn.exception()  # it came in the same turn of the event loop
            raise

    def set_capacity(self, queue: str, streams: int | None, spare: int) -> None:
        self.send((messages.CAPACITY, queue, streams, spare))

    async def states(self, tenants: int) -> tuple[QueueState, ...]:
        """Raises LimitsUnavailable: the connection has ended."""
        if not self.is_connected:
            raise _unavailable()
        number = next(self._numbers)
        question = self._questions[number] = Question()
        self.send((messages.STATES, number, tenants))
        try:
            await question.is_answered
        finally:
            self._questions.pop(number, None)
        return tuple(question.states)

    def begin_charging(self, permit: WorkerPermit) -> None:
        self._meters.add(permit)

    def release(self, permit: WorkerPermit) -> None:
        self._meters.remove(permit)
        if self._permits.pop(permit.number, None) is not None:
            self.send((messages.RELEASE, *permit.charges()))

    def take(self, message: wire.Message) -> None:
        match message:
            case [messages.GRANTED, number, took_over]:
                if (permit := self._waiting(number)) is not None:
                    permit.took_over = took_over
                    permit.turn.set_result(None)
            case [messages.REFUSED, number, text, retry_after_s]:
                if (permit := self._waiting(number)) is not None:
                    del self._permits[number]
                    permit.turn.set_exception(_refusal(text, retry_after_s))
            case [messages.MOVED, moves]:
                for move in moves:
                    self._soon(self._move, *move)
            case [messages.PREEMPTED, number]:
                self._soon(self._preempt, number)
            case [messages.STATE, number, *state]:
                if (question := self._questions.get(number)) is not None:
                    question.take(state)
            case _:
                raise ValueError(f"an unknown message: {message!r}")

    def end(self) -> None:
        self._meters.stop()
        permits, self._permits = self._permits, {}
        if not self.is_closing:
            logger.error(
                "queue: the parent of this worker is gone",
                streams=len(permits),
                advice="nothing, if the proxy is being stopped; otherwise restart it: its "
                "launcher has died",
            )
        waiting = [permit.turn for permit in permits.values()]
        for turn in (*waiting, *(one.is_answered for one in self._questions.values())):
            if not turn.done():
                turn.set_exception(_unavailable())

    def _waiting(self, number: int) -> WorkerPermit | None:
        """None where it has left, or was answered."""
        permit = self._permits.get(number)
        return None if permit is None or permit.turn.done() else permit

    def _soon(self, call: Callable[..., None], *arguments: object) -> None:
        """An error of what it calls does not end the connection."""
        asyncio.get_running_loop().call_soon(call, *arguments)

    def _move(self, number: int, position: int, wait_s: float | None) -> None:
        if (permit := self._waiting(number)) is not None:
            permit.moved(Standing(position, wait_s))

    def _preempt(self, number: int) -> None:
        if (permit := self._permits.get(number)) is not None:
            permit.preempted()

    def _charge(self, permits: Sequence[WorkerPermit]) -> None:
        charges = [permit.charges() for permit in permits if permit.has_news]
        if charges:
            self.send((messages.CHARGE, charges))


def _refusal(message: str, retry_after_s: float) -> RateLimited:
    return RateLimited(message, retry_after_s=retry_after_s, code=ErrorCode.QUEUE_FULL)


def _unavailable() -> LimitsUnavailable:
    return LimitsUnavailable("The queue of requests cannot be reached. Try again later.")
