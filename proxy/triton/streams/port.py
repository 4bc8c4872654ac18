"""The port: calls of ModelStreamInfer, each with one request and many responses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from grpc import StatusCode
from tritonclient.grpc import service_pb2
from typing_extensions import Self

# A longer response ends its stream with RESOURCE_EXHAUSTED.
MAX_RESPONSE_BYTES = 64 * 1024 * 1024
# A released stream that has not ended by then is cancelled.
RELEASE_TIMEOUT_S = 5.0


Metadata = tuple[tuple[str, str], ...]


class StreamFailed(Exception):
    """A gRPC status: a code, and the server's or the transport's text."""

    def __init__(self, code: StatusCode, details: str) -> None:
        super().__init__(f"{code.name}: {details}")
        self.code = code
        self.details = details


@dataclass(frozen=True, slots=True)
class LeaseTerms:
    """engine: the Triton model that grants leases. call: makes the request for a lease's id."""

    engine: str
    call: Callable[[str], service_pb2.ModelInferRequest]


class ResponseStream(Protocol):
    """The responses of one call, in order. Its opener ends it, by `cancel` or `release`.

    If the call failed, iterating raises StreamFailed after the last response.
    """

    def __aiter__(self) -> Self: ...

    async def __anext__(self) -> service_pb2.ModelStreamInferResponse: ...

    def open_sibling(
        self, request: service_pb2.ModelInferRequest, *, timeout_s: float
    ) -> ResponseStream:
        """Opens a call to the same server while this one runs; later, to any.

        There may be several servers behind one address.
        """
        ...

    def cancel(self) -> None:
        """Ends it now, on the server too. Does nothing if it has ended."""
        ...

    def release(self) -> None:
        """Discards what still arrives until the server ends it, for RELEASE_TIMEOUT_S at most."""
        ...


class Streams(Protocol):
    """Entered on the event loop that uses it. On exit, the streams that still run end."""

    async def __aenter__(self) -> object: ...

    async def __aexit__(self, *exc_info: object) -> None: ...

    def open(
        self,
        request: service_pb2.ModelInferRequest,
        *,
        timeout_s: float,
        terms: LeaseTerms | None = None,
        metadata: Metadata = (),
    ) -> ResponseStream:
        """Connects if necessary; a failure to connect fails the stream.

        With `terms` the stream runs under a lease of its connection, see leases. metadata: of the
        call, with names in lower case.
        """
        ...
