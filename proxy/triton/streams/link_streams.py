"""The streams on one connection of the lean transport, and the calls that hold their leases."""

from __future__ import annotations

import math
from collections.abc import Callable

from tritonclient.grpc import service_pb2

from proxy.triton.http2.connection import Connection
from proxy.triton.http2.head_encoder import Fields
from proxy.triton.http2.status import Status
from proxy.triton.streams.lean_stream import Carrier, LeanStream
from proxy.triton.streams.leases import PARAMETER, Cancel, Leases, log_refusal


class LinkStreams:
    """Used by `link`. `len` counts streams without the calls that hold leases.

    by_number: streams and leases' calls, by their HTTP/2 stream.
    """

    def __init__(self, carrier: Carrier, connection: Connection) -> None:
        self._carrier = carrier
        self._connection = connection
        self.by_number: dict[int, LeanStream] = {}
        self._leases = Leases(self._hold)

    def __len__(self) -> int:
        return len(self.by_number) - self._leases.calls

    def start(self, stream: LeanStream) -> None:
        timeout = f"{max(1, math.ceil(stream.left_s * 1000))}m"
        message = stream.request + self._lease_parameter(stream)
        self._open(stream, [("grpc-timeout", timeout), *stream.metadata], message)

    def remove(self, number: int) -> LeanStream:
        """Called when a stream has ended, or moves to another connection."""
        stream = self.by_number.pop(number)
        if stream.terms is not None:
            self._leases.leave(stream.terms)
        return stream

    def close(self) -> None:
        """Called when the connection is lost."""
        self._leases.close()

    def _open(self, stream: LeanStream, headers: Fields, message: bytes) -> None:
        stream.carrier = self._carrier
        stream.number = self._connection.open(headers, message)
        self.by_number[stream.number] = stream

    def _lease_parameter(self, stream: LeanStream) -> bytes:
        """Appended to a request, adds the lease's id to its parameters: protobuf merges them."""
        if stream.terms is None:
            return b""
        message = service_pb2.ModelInferRequest()
        message.parameters[PARAMETER].string_param = self._leases.enter(stream.terms)
        return bytes(message.SerializeToString())

    def _hold(
        self, request: service_pb2.ModelInferRequest, ended: Callable[[], None]
    ) -> Cancel | None:
        if self._connection.room < 2:  # for this call, and for the stream that needs the lease
            return None
        call = _LeaseCall(self._carrier, ended)
        self._open(call, [], request.SerializeToString())
        return call.cancel


class _LeaseCall(LeanStream):
    """A call without a reader or a deadline. Calls `ended` once."""

    __slots__ = ("_ended",)

    def __init__(self, home: Carrier, ended: Callable[[], None]) -> None:
        super().__init__(home, b"", math.inf)
        self._ended = ended

    def deliver(self, message: bytes) -> None:
        self._message_was_read()
        log_refusal(message)

    def end(self, status: Status) -> None:
        if self._status is None:
            super().end(status)
            self._ended()
