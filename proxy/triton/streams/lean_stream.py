"""A stream of the lean transport, as its reader sees it."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from typing import Protocol

from google.protobuf.message import DecodeError
from grpc import StatusCode
from tritonclient.grpc import service_pb2
from typing_extensions import Self

from proxy.triton.http2.status import Status
from proxy.triton.streams.leases import LeaseTerms

# A longer response ends its stream with RESOURCE_EXHAUSTED.
MAX_RESPONSE_BYTES = 64 * 1024 * 1024
# A released stream that has not ended by then is cancelled.
RELEASE_TIMEOUT_S = 5.0

Metadata = tuple[tuple[str, str], ...]  # of a call; names in lower case
_parsed = service_pb2.ModelStreamInferResponse.FromString


class StreamFailed(Exception):
    """A gRPC status: a code, and the server's or the transport's text."""

    def __init__(self, code: StatusCode, details: str) -> None:
        super().__init__(f"{code.name}: {details}")
        self.code = code
        self.details = details


class Carrier(Protocol):
    """What a stream is on at present: the pool's queue, or a link."""

    def place(self, stream: LeanStream) -> None:
        """Starts it, at once or when there is room."""
        ...

    def message_was_read(self, stream: LeanStream) -> None:
        """Lets the server send more on this stream."""
        ...

    def cancel(self, stream: LeanStream) -> None: ...


class LeanStream:
    """The responses of one call of ModelStreamInfer, in order. Its opener ends it, by `cancel` or
    `release`. If the call failed, iterating raises StreamFailed after the last response.

    `deliver` and `end` are called by its carrier.

    home: the carrier for its siblings once it has ended. number: its HTTP/2 stream on its link.
    request: kept while it may have to be sent again, then empty. timeout_s: may be infinite.
    """

    __slots__ = (
        "_deadline",
        "_home",
        "_is_released",
        "_loop",
        "_status",
        "_timer",
        "_unread",
        "_waiter",
        "carrier",
        "metadata",
        "number",
        "replays",
        "request",
        "terms",
    )

    def __init__(
        self,
        home: Carrier,
        request: bytes,
        timeout_s: float,
        terms: LeaseTerms | None = None,
        metadata: Metadata = (),
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
        self._is_released = False
        self.request = request
        self.terms = terms
        self.metadata = metadata
        self.carrier: Carrier | None = None
        self.number = 0
        self.replays = 0

    @property
    def left_s(self) -> float:
        """Seconds until its deadline."""
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
            self.carrier.message_was_read(self)
        try:
            return _parsed(message)
        except DecodeError as error:
            self.cancel()
            raise StreamFailed(StatusCode.INTERNAL, "a message cannot be parsed") from error

    def open_sibling(
        self, request: service_pb2.ModelInferRequest, *, timeout_s: float
    ) -> LeanStream:
        """Opens a call to the same server while this one runs; later, to any.

        There may be several servers behind one address.
        """
        stream = LeanStream(self._home, request.SerializeToString(), timeout_s)
        (self.carrier or self._home).place(stream)
        return stream

    def cancel(self) -> None:
        """Ends it now, on the server too. Does nothing if it has ended."""
        self._cancel(Status(StatusCode.CANCELLED, "cancelled by the proxy"))
        self._unread.clear()

    def release(self) -> None:
        """Discards what still arrives until the server ends it, for RELEASE_TIMEOUT_S at most."""
        if self._status is not None:
            return
        self._is_released = True
        while self._unread:
            self._unread.popleft()
            self._message_was_read()
        self._stop_timer()
        self._timer = self._loop.call_later(RELEASE_TIMEOUT_S, self.cancel)

    def deliver(self, message: bytes) -> None:
        self.request = b""
        if self._is_released:
            self._message_was_read()
            return
        self._unread.append(message)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)  # once, however many messages arrive before it runs

    def end(self, status: Status) -> None:
        """Messages that were delivered before can still be read."""
        if self._status is None:
            self._status = status
            self._stop_timer()
            self.carrier, self.request = None, b""
            if self._waiter is not None and not self._waiter.done():
                self._waiter.set_result(None)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _message_was_read(self) -> None:
        if self.carrier is not None:
            self.carrier.message_was_read(self)

    def _expire(self) -> None:
        self._cancel(Status(StatusCode.DEADLINE_EXCEEDED, "the call exceeded its deadline"))

    def _cancel(self, status: Status) -> None:
        if self.carrier is not None:
            self.carrier.cancel(self)
        self.end(status)


def _ending(status: Status) -> Exception:
    return StopAsyncIteration() if status.is_ok else StreamFailed(status.code, status.details)
