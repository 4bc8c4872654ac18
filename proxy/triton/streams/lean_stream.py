"""A stream of the lean transport, as its reader holds it."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from typing import Protocol

from google.protobuf.message import DecodeError
from grpc import StatusCode
from tritonclient.grpc import service_pb2
from typing_extensions import Self

from triton_openai.proxy.triton.http2.status import Status
from triton_openai.proxy.triton.streams.port import LET_GO_TIMEOUT_S, LeaseTerms, StreamFailed

_parsed = service_pb2.ModelStreamInferResponse.FromString


class Carrier(Protocol):
    """Where a stream is: in the pool's queue, or on a link."""

    def place(self, stream: LeanStream) -> None:
        """Starts it, now or when there is room."""
        ...

    def took(self, stream: LeanStream) -> None:
        """One of its messages was read."""
        ...

    def cancel(self, stream: LeanStream) -> None: ...


class LeanStream:
    """See port.ResponseStream. `deliver`, `end` and `carrier` belong to the carriers.

    `home` carries it where no other does. `number` is the HTTP/2 stream on its link. `request` is
    kept while it may have to be sent again, and empty afterwards. `timeout_s` is infinite for none.
    """

    __slots__ = (
        "_deadline",
        "_home",
        "_is_let_go",
        "_loop",
        "_status",
        "_timer",
        "_unread",
        "_waiter",
        "carrier",
        "number",
        "replays",
        "request",
        "terms",
    )

    def __init__(
        self, home: Carrier, request: bytes, timeout_s: float, terms: LeaseTerms | None = None
    ) -> None:
        self._home = home
        self._loop = asyncio.get_running_loop()
        self._deadline = self._loop.time() + timeout_s
        self._timer: asyncio.TimerHandle | None = None
        if not math.isinf(timeout_s):
            self._timer = self._loop.call_at(self._deadline, self._expire)
        self._unread: deque[bytes] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._status: Status | None = None
        self._is_let_go = False
        self.request = request
        self.terms = terms
        self.carrier: Carrier | None = None
        self.number = 0
        self.replays = 0

    @property
    def left_s(self) -> float:
        """Until its deadline."""
        return self._deadline - self._loop.time()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> service_pb2.ModelStreamInferResponse:
        while not self._unread:
            if self._status is not None:
                raise _ending(self._status)
            self._waiter = self._loop.create_future()
            await self._waiter
        message = self._unread.popleft()
        if self.carrier is not None:
            self.carrier.took(self)
        try:
            return _parsed(message)
        except DecodeError as error:
            self.cancel()
            raise StreamFailed(StatusCode.INTERNAL, "a message cannot be parsed") from error

    def beside(self, request: service_pb2.ModelInferRequest, *, timeout_s: float) -> LeanStream:
        stream = LeanStream(self._home, request.SerializeToString(), timeout_s)
        (self.carrier or self._home).place(stream)
        return stream

    def cancel(self) -> None:
        self._leave(Status(StatusCode.CANCELLED, "cancelled here"))
        self._unread.clear()

    def let_go(self) -> None:
        if self._status is not None:
            return
        self._is_let_go = True
        while self._unread:
            self._unread.popleft()
            self._took()
        self._stop_timer()
        self._timer = self._loop.call_later(LET_GO_TIMEOUT_S, self.cancel)

    def deliver(self, message: bytes) -> None:
        self.request = b""
        if self._is_let_go:
            self._took()
            return
        self._unread.append(message)
        self._wake()

    def end(self, status: Status) -> None:
        """What was delivered before can still be read."""
        if self._status is None:
            self._status = status
            self._stop_timer()
            self.carrier, self.request = None, b""
            self._wake()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _took(self) -> None:
        if self.carrier is not None:
            self.carrier.took(self)

    def _expire(self) -> None:
        self._leave(Status(StatusCode.DEADLINE_EXCEEDED, "the call's time is over"))

    def _leave(self, status: Status) -> None:
        if self.carrier is not None:
            self.carrier.cancel(self)
        self.end(status)

    def _wake(self) -> None:
        """Once, however much comes before the reader runs."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def _ending(status: Status) -> Exception:
    return StopAsyncIteration() if status.is_ok else StreamFailed(status.code, status.details)
