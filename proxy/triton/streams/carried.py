"""The streams on one connection of the lean transport, and the calls that hold their leases."""

from __future__ import annotations

import math
from collections.abc import Callable

from tritonclient.grpc import service_pb2

from triton_openai.proxy.triton.http2.connection import Connection
from triton_openai.proxy.triton.http2.head_encoder import Fields
from triton_openai.proxy.triton.streams.lean_lease import LeanLease
from triton_openai.proxy.triton.streams.lean_stream import Carrier, LeanStream
from triton_openai.proxy.triton.streams.leases import PARAMETER, Cancel, Leases


class Carried:
    """`by_number`: that a stream or a lease's call has on the connection. `len` counts streams."""

    def __init__(self, carrier: Carrier, connection: Connection) -> None:
        self._carrier = carrier
        self._connection = connection
        self.by_number: dict[int, LeanStream] = {}
        self._leases = Leases(self._hold)

    def __len__(self) -> int:
        return len(self.by_number) - self._leases.calls

    def start(self, stream: LeanStream) -> None:
        timeout = f"{max(1, math.ceil(stream.left_s * 1000))}m"
        self._open(stream, [("grpc-timeout", timeout)], stream.request + self._enter(stream))

    def remove(self, number: int) -> LeanStream:
        """It has ended here."""
        stream = self.by_number.pop(number)
        if stream.terms is not None:
            self._leases.leave(stream.terms)
        return stream

    def close(self) -> None:
        """The connection is gone."""
        self._leases.close()

    def _open(self, stream: LeanStream, headers: Fields, message: bytes) -> None:
        stream.carrier = self._carrier
        stream.number = self._connection.open(headers, message)
        self.by_number[stream.number] = stream

    def _enter(self, stream: LeanStream) -> bytes:
        """What names its lease, behind the bytes of its request."""
        if stream.terms is None:
            return b""
        message = service_pb2.ModelInferRequest()
        message.parameters[PARAMETER].string_param = self._leases.enter(stream.terms)
        return bytes(message.SerializeToString())

    def _hold(
        self, request: service_pb2.ModelInferRequest, ended: Callable[[], None]
    ) -> Cancel | None:
        if self._connection.room < 2:  # the stream that needs the lease comes behind it
            return None
        call = LeanLease(self._carrier, ended)
        self._open(call, [], request.SerializeToString())
        return call.cancel
